"""The version is the same everywhere, and what the workflows install and run exists and fits ``pyproject.toml``."""

import re
import shutil
import subprocess

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version
from test_lowest import PROJECT, ROOT, tomllib

WHOLE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}
PAIRS = [
    (one["python"], one["tensorflow"]) for one in WORKFLOWS["ci"]["jobs"]["tests"]["strategy"]["matrix"]["include"]
]
SETS = {f"python{python}-tensorflow{tensorflow}": ["test"] for python, tensorflow in PAIRS} | {
    "python3.12-extras": ["test", "docs", "atari", "envpool", "minari", "ray", "robotics"],
    "python3.12-dmc": ["test", "dmc"],
}
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def steps(workflow):
    return [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"]]


def test_git_for_windows_leaves_the_ends_of_lines_as_they_are():
    """An export holds a file of the package, with its checksum."""
    assert "* -text" in (ROOT / ".gitattributes").read_text(encoding="utf-8").splitlines()


# -- the version ------------------------------------------------------------------------------------------------------


def test_the_next_version_is_the_same_in_every_file():
    """The version of a tree without tags, in the citation, and in the newest heading of the changelog."""
    fallback = Version(WHOLE["tool"]["setuptools_scm"]["fallback_version"]).base_version
    newest = re.search(r"^## (\S+) \(", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert CITATION["version"] == fallback == newest
    assert f"ARG VERSION={fallback}.dev0" in (ROOT / "Dockerfile").read_text()


def test_the_citation_has_the_required_fields():
    assert {"cff-version", "message", "title", "authors", "license", "version"} <= {*CITATION}
    assert CITATION["license"] == PROJECT["license"]


@pytest.mark.parametrize(
    ("citation", "changelog", "lacks"),
    [
        ("version: 1.2.3\ndate-released: 2030-01-02\n", "## 1.2.3 (2030-01-02)\n", None),
        ("version: 1.2.30\ndate-released: 2030-01-02\n", "## 1.2.3 (2030-01-02)\n", "CITATION.cff"),
        ("version: 1x2.3\ndate-released: 2030-01-02\n", "## 1.2.3 (2030-01-02)\n", "CITATION.cff"),
        ("version: 1.2.3\n", "## 1.2.3 (2030-01-02)\n", "date-released"),
        ("version: 1.2.3\ndate-released: 2030-01-02\n", "## 1.2.3 (unreleased)\n", "CHANGELOG.md"),
        ("version: 1.2.3\ndate-released: 2030-01-02\n", "## 1.2.2 (2030-01-02)\n", "CHANGELOG.md"),
    ],
)
def test_a_tag_is_released_only_if_the_files_name_it(citation, changelog, lacks, tmp_path):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "release", tmp_path / ".ci")
    (tmp_path / "CITATION.cff").write_text(citation)
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    done = subprocess.run([tmp_path / ".ci" / "release", "v1.2.3"], capture_output=True, text=True, check=False)
    assert (done.returncode == 0, done.stderr == "") == (lacks is None,) * 2
    assert lacks is None or lacks in done.stderr


# -- constraints ------------------------------------------------------------------------------------------------------


def pins(name):
    lines = (ROOT / "constraints" / f"{name}.txt").read_text().splitlines()
    return {line.partition("==")[0]: line.partition("==")[2] for line in lines if line and line[0] != "#"}


def requirements(extras):
    """Return the requirements of extras, with those of the extras that they name."""
    found, waiting = [*PROJECT["dependencies"]], [*extras]
    while waiting:
        for text in PROJECT["optional-dependencies"][waiting.pop()]:
            requirement = Requirement(text)
            if requirement.name == "ddpg-paths":
                waiting += requirement.extras
            else:
                found.append(text)
    return [Requirement(text) for text in found]


def test_exactly_the_tested_sets_have_constraints():
    assert {path.stem for path in (ROOT / "constraints").glob("*.txt")} == {"lowest", *SETS}


@pytest.mark.parametrize("name", SETS)
def test_constraints_pin_every_requirement_within_its_bounds(name):
    python, pinned = re.match(r"python([\d.]+)-", name)[1], pins(name)
    environment = {"python_version": python, "sys_platform": "linux", "platform_machine": "x86_64"}
    for requirement in requirements(SETS[name]):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            pin = pinned.get(requirement.name.lower().replace("_", "-"))
            assert pin is not None, f"{requirement.name} is not in constraints/{name}.txt; run .ci/constraints"
            assert requirement.specifier.contains(pin), f"{requirement} is pinned to {pin}"
    assert all(re.fullmatch(r"[\w.]+(\+\w+)?( ;.*)?", version) for version in pinned.values())


@pytest.mark.parametrize(("python", "tensorflow"), PAIRS)
def test_a_pairs_constraints_have_its_tensorflow_and_a_supported_python(python, tensorflow):
    assert pins(f"python{python}-tensorflow{tensorflow}")["tensorflow"].startswith(f"{tensorflow}.")
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]


def test_the_lowest_and_highest_supported_versions_are_tested():
    pythons = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert {python for python, _ in PAIRS} == {*pythons}
    assert {"2.18", "2.21"} <= {tensorflow for _, tensorflow in PAIRS}


# -- workflows --------------------------------------------------------------------------------------------------------


def test_other_platforms_are_tested():
    """Tests, and the wheel of a release, on Windows, macOS and Linux on ARM."""
    systems = {*WORKFLOWS["ci"]["jobs"]["platforms"]["strategy"]["matrix"]["os"]}
    tried = {one["os"] for one in WORKFLOWS["release"]["jobs"]["try"]["strategy"]["matrix"]["include"]}
    for system in (systems, tried):
        assert {re.match(r"[a-z]+", name)[0] for name in system} >= {"windows", "macos", "ubuntu"}
        assert any(name.endswith("-arm") for name in system)


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_files_named_by_a_workflow_exist(workflow):
    for step in steps(workflow):
        assert ("uses" in step) != ("run" in step)
        command = re.sub(r"\S*\$\{\{.*?\}\}\S*", "", step.get("run", ""))  # without names in variables
        for path in re.findall(r"(?:\.ci|constraints|benchmarks|tests)/[\w./-]+", command):
            assert (ROOT / path).exists(), path
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])


def test_every_slow_test_is_in_one_of_the_nightly_jobs():
    jobs = []
    for arguments in WORKFLOWS["slow"]["jobs"]["slow"]["strategy"]["matrix"]["tests"]:
        folder, *ignored = (ROOT / word.removeprefix("--ignore=") for word in arguments.split())
        jobs.append((folder, ignored))
    slow = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.slow" in path.read_text(encoding="utf-8")]
    assert len(slow) > 50
    for path in slow:
        around = {path, *path.parents}
        assert [folder in around and not around & {*ignored} for folder, ignored in jobs].count(True) == 1, path


def test_only_the_job_that_attests_has_permissions():
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}
        may = {job: dict(about.get("permissions", {})) for job, about in workflow["jobs"].items()}
        assert {job for job, what in may.items() if what} == ({"attest"} if name == "release" else set())


def test_a_release_is_built_then_tested_then_attested():
    jobs = WORKFLOWS["release"]["jobs"]
    assert WORKFLOWS["release"][True] == {"push": {"tags": ["v*"]}}  # YAML reads ``on`` as true
    assert (jobs["try"]["needs"], jobs["attest"]["needs"]) == ("build", ["build", "try"])
    assert any(step.get("uses", "").startswith("actions/attest-build-provenance@") for step in jobs["attest"]["steps"])
    assert not any(step.get("uses", "").startswith("actions/checkout@") for step in jobs["try"]["steps"])


def test_the_pre_commit_hooks_run_the_linter_of_continuous_integration():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    entries = [hook["entry"] for repository in config["repos"] for hook in repository["hooks"]]
    assert [" ".join(entry.split()[:2]) for entry in entries] == ["ruff check", "ruff format"]
    run = (ROOT / ".ci" / "run").read_text()
    assert "ruff check\n" in run
    assert "ruff format --check\n" in run


def test_the_scripts_are_executable():
    for path in (ROOT / ".ci").iterdir():
        assert path.stat().st_mode & 0o100, path


def test_links_of_the_security_policy_exist():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([\w/.-]+)", text):
        assert (ROOT / link).exists(), link
