"""Which options a collector accepts, and the error without Ray."""

import multiprocessing
import subprocess
import sys

import pytest
from refusals import lacking, refuses

from ddpg import UsageError, resume, train
from ddpg.workers.worker_options import check_collector


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (("proces", 2, None), "'process'"),
        (("local", 2, None), "workers 2 collector process ray"),
        (("process", None, None), "workers"),
        (("process", 0, None), "workers"),
        (("process", 2000, None), "1 1024"),
        (("process", 2, "auto"), "collector ray"),
    ],
)
def test_inconsistent_collector_options_are_refused(chosen, message):
    with refuses(UsageError, message):
        check_collector(*chosen)


def test_consistent_collector_options_are_accepted():
    check_collector("local", None, None)
    check_collector("process", 1, None)


@pytest.mark.parametrize("function", [train, resume])
def test_a_worker_process_that_imports_the_script_does_not_train(monkeypatch, tmp_path, function):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    monkeypatch.chdir(tmp_path)
    with refuses(UsageError, f"{function.__name__} __main__"):
        function("Pendulum-v1")
    assert list(tmp_path.iterdir()) == []


UNGUARDED = """\
import ddpg
config = ddpg.DDPGConfig(hidden=(4,), batch_size=4, jit=False, buffer_size=1000)
ddpg.train("Pendulum-v1", config, total_timesteps=400, collector="process", workers=2, progress_bar=False)
"""


@pytest.mark.slow
def test_a_script_without_a_guard_makes_one_run_and_is_told_of_the_guard(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["Pendulum-v1"]
    assert [path.name for path in (tmp_path / "runs" / "Pendulum-v1").iterdir()] == ["1"]
    assert '__name__ == "__main__":' in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("options", ['collector="process", workers=2', 'n_envs=2, vectorization="async"'])
def test_a_script_on_stdin_is_told_to_be_a_file(options, tmp_path):
    """A guard would not help it, although the script has one. Nothing is begun."""
    script = f"import ddpg\nif __name__ == '__main__':\n    ddpg.train('Pendulum-v1', {options}, progress_bar=False)\n"
    done = subprocess.run(
        [sys.executable], input=script, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert not lacking(done.stderr.splitlines()[-1], "UsageError", "standard", "file")
    assert list(tmp_path.iterdir()) == []


def test_without_ray_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with refuses(UsageError, "ray") as caught:
        train("Pendulum-v1", collector="ray", workers=2, root=tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
