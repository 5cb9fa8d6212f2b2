"""Which slow tests a change asks for, in a temporary repository."""

import shutil
import subprocess

import pytest
import slow_tests

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
FILES = {
    "ddpg/progress.py": "",
    "ddpg/runs/curves.py": "",
    "ddpg/runs/curve.py": "",
    "ddpg/agents/curves.py": "",
    "envs/rooms.py": "",
    "docs/curves.md": "",
    "tests/small_studies.py": "",
    "tests/test_progress.py": "",
    "tests/envs/test_rooms.py": "",
    "tests/runs/test_curves.py": "",
    "tests/runs/test_curves_of_many.py": "    from small_studies import studies\n",
    "tests/runs/test_resume.py": "import small_studies_of_tuning\n",
    "tests/studies/test_study.py": "from small_studies import small\n",
}


def git(folder, *arguments):
    who = ("-c", "user.name=n", "-c", "user.email=e@f", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def change(folder, name):
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write("changed = True\n")


@pytest.fixture
def tree(tmp_path):
    """A repository with two commits on ``main``; the second changes nothing."""
    git(tmp_path, "init", "--initial-branch=main")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    git(tmp_path, "commit", "--allow-empty", "-m", "second")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("tests/runs/test_resume.py", ["tests/runs/test_resume.py"]),
        ("ddpg/runs/curves.py", ["tests/runs/test_curves.py", "tests/runs/test_curves_of_many.py"]),
        ("ddpg/runs/curve.py", []),
        ("ddpg/agents/curves.py", []),
        ("ddpg/progress.py", ["tests/test_progress.py"]),
        ("envs/rooms.py", ["tests/envs/test_rooms.py"]),
        ("tests/small_studies.py", ["tests/runs/test_curves_of_many.py", "tests/studies/test_study.py"]),
        ("docs/curves.md", []),
    ],
)
@pytest.mark.parametrize("committed", [False, True])
def test_changed_test_files_importing_ones_and_those_named_after_a_changed_module(tree, changed, expected, committed):
    change(tree, changed)
    if committed:
        git(tree, "commit", "--all", "-m", "third")
    assert slow_tests.test_files(tree, "HEAD~1") == expected


def test_new_and_deleted_files(tree):
    (tree / "ddpg/runs/curves.py").unlink()
    (tree / "tests/runs/test_curves_of_many.py").unlink()
    (tree / "tests/runs/test_pools.py").write_text("")
    assert slow_tests.test_files(tree, "HEAD") == ["tests/runs/test_curves.py", "tests/runs/test_pools.py"]


def test_a_branch_is_compared_with_where_it_left_main(tree):
    assert slow_tests.default_revision(tree) == "HEAD~1"
    git(tree, "checkout", "-b", "branch")
    for name in ("tests/test_progress.py", "tests/runs/test_resume.py"):
        change(tree, name)
        git(tree, "commit", "--all", "-m", name)
    git(tree, "checkout", "main")
    change(tree, "tests/envs/test_rooms.py")
    git(tree, "commit", "--all", "-m", "elsewhere")
    git(tree, "update-ref", "refs/remotes/origin/main", "main")
    git(tree, "checkout", "branch")
    since = slow_tests.default_revision(tree)
    assert slow_tests.test_files(tree, since) == ["tests/runs/test_resume.py", "tests/test_progress.py"]


def test_an_unknown_revision_is_an_error_not_an_empty_choice(tree):
    with pytest.raises(subprocess.CalledProcessError):
        slow_tests.test_files(tree, "unknown")
