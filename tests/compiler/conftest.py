"""Compile for another processor, where ``DDPG_TEST_PROCESSOR`` names one (tests/compiler/test_other_processors.py)."""

import os

if processor := os.environ.get("DDPG_TEST_PROCESSOR"):
    import other_processors

    other_processors.become(processor)

    def pytest_terminal_summary(terminalreporter) -> None:
        """Print how many kernels were made, so that the caller sees that they were."""
        terminalreporter.write_line(f"kernels made for {processor}: {len(other_processors.used)}")
