"""constraints/lowest.txt, which a CI job installs, has the lowest version of everything that pyproject.toml names."""

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TESTED = ("box2d", "export", "mujoco", "notebooks", "tune", "video", "test")  # installed by '.[test]'
PINS = dict(line.split("==") for line in (ROOT / "constraints" / "lowest.txt").read_text().splitlines() if "==" in line)


def lowest(requirement):
    """Return name and version of ``name[extra]>=1.2,<2; marker``, or nothing without a version."""
    found = re.match(r"([\w-]+)(?:\[\w+\])?[><=]=([\d.]+)", requirement)
    return found.groups() if found else None


REQUIRED = [*PROJECT["dependencies"], *(one for extra in TESTED for one in PROJECT["optional-dependencies"][extra])]


@pytest.mark.parametrize(("name", "version"), sorted({*filter(None, map(lowest, REQUIRED))}))
def test_the_lowest_supported_version_is_tested(name, version):
    pinned = [*map(int, PINS[name].split("."))]
    assert pinned[: len(version.split("."))] == [*map(int, version.split("."))]


def test_the_lowest_llvmlite_parses_the_native_compilers_code():
    """llvmlite 0.44 refuses opaque pointers."""
    assert [*map(int, PINS["llvmlite"].split("."))] >= [0, 45, 1]


def test_the_lowest_xdist_knows_the_options_that_pytest_is_given():
    """It knows --no-loadscope-reorder from 3.8.0 on; with an earlier one no test starts."""
    assert [*map(int, PINS["pytest-xdist"].split("."))] >= [3, 8, 0]


def test_the_lowest_ipykernel_requires_what_it_imports():
    """6.0.0 imports ipython_genutils without requiring it, so that no kernel starts; 6.5.0 no longer imports it."""
    assert [*map(int, PINS["ipykernel"].split("."))] >= [6, 5, 0]


def test_continuous_integration_installs_the_lowest_and_every_extra():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert "--constraint constraints/lowest.txt" in text
    for extra in ("dmc", "envpool", "minari", "ray", "robotics"):
        assert re.search(rf"pip install [^\n]*'\.\[[\w,]*\b{extra}\b", text)


def test_continuous_integration_uses_a_real_slurm():
    """The job fails if there is none, because the tests would be skipped."""
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    steps = ("apt-get install -y slurm-wlm munge", "command -v slurmctld", "tests/studies/test_slurm_cluster.py")
    installed, found, tried = map(text.index, steps)
    assert installed < found < tried
    assert (ROOT / "tests" / "studies" / "test_slurm_cluster.py").exists()
