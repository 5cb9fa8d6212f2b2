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
TESTED = ("export", "mujoco", "notebooks", "tune", "video", "test")  # what '.[test]' brings
PINS = dict(line.split("==") for line in (ROOT / "constraints" / "lowest.txt").read_text().splitlines() if "==" in line)


def lowest(requirement):
    """Return name and version of ``name[extra]>=1.2,<2; marker``; nothing where no version is named."""
    found = re.match(r"([\w-]+)(?:\[\w+\])?[><=]=([\d.]+)", requirement)
    return found.groups() if found else None


REQUIRED = [*PROJECT["dependencies"], *(one for extra in TESTED for one in PROJECT["optional-dependencies"][extra])]


@pytest.mark.parametrize(("name", "version"), sorted({*filter(None, map(lowest, REQUIRED))}))
def test_the_lowest_version_is_the_one_that_is_tested(name, version):
    pinned = [*map(int, PINS[name].split("."))]
    assert pinned[: len(version.split("."))] == [*map(int, version.split("."))]


def test_llvm_parses_what_the_native_compiler_writes():
    """Opaque pointers: llvmlite 0.44 refuses them."""
    assert [*map(int, PINS["llvmlite"].split("."))] >= [0, 45, 1]


def test_continuous_integration_installs_the_lowest_and_every_extra():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert "--constraint constraints/lowest.txt" in text
    for extra in ("dmc", "envpool", "minari", "ray", "robotics"):
        assert re.search(rf"pip install [^\n]*'\.\[[\w,]*\b{extra}\b", text)


def test_continuous_integration_tries_a_real_slurm():
    """And refuses to go on without one, where the tests would be left out."""
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    steps = ("apt-get install -y slurm-wlm munge", "command -v slurmctld", "tests/studies/test_slurm_cluster.py")
    installed, found, tried = map(text.index, steps)
    assert installed < found < tried
    assert (ROOT / "tests" / "studies" / "test_slurm_cluster.py").exists()
