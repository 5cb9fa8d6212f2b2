"""An empty program; and compilation for another processor, if ``DDPG_TEST_PROCESSOR`` names one.

See tests/compiler/test_other_processors.py.
"""

import os

import pytest

from ddpg.compiler.ir import Program

if processor := os.environ.get("DDPG_TEST_PROCESSOR"):
    import other_processors

    other_processors.become(processor)

    def pytest_terminal_summary(terminalreporter) -> None:
        """Print how many kernels were compiled, so that the caller can check that some were."""
        terminalreporter.write_line(f"kernels made for {processor}: {len(other_processors.used)}")


@pytest.fixture
def program():
    return Program()
