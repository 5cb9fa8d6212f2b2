"""The ``ddpg`` command: run directories, evaluation, resuming, interrupts, and one-line errors."""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from few_frames import few_frames
from pictures import drawn

import ddpg
from ddpg import DDPG, __main__, evaluate
from ddpg.cli.command import import_with_tensorflow
from ddpg.cli.main import main
from ddpg.exports.export import FORMATS
from ddpg.runs import run_directory, saved_policy
from ddpg.runs.tables import read_table

v1 = tf.compat.v1
TINY = ["--hidden", "8", "--batch-size", "8", "--learning-starts", "50", "--updates-per-call", "10"]
TINY += ["--no-jit", "--optimizer", "sgd", "--target", "online"]
RUN = ["--seed", "0", "--total-timesteps", "400", "--evaluation-interval", "200", "--evaluation-episodes", "2"]


def command(*arguments, capsys):
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def read_until(stream, pattern):
    """Read from a pipe until ``pattern`` matches; fail if it is closed before, or silent for two minutes."""
    text = ""
    while not re.search(pattern, text):
        assert select.select([stream], [], [], 120)[0], f"silent after {text!r}"
        data = os.read(stream.fileno(), 65536)
        assert data, f"closed after {text!r}"
        text += data.decode(errors="replace")
    return text


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    with drawn():
        assert main(["train", "Pendulum-v1", *TINY, *RUN, "--root", str(root), "--no-progress-bar"]) == 0
    return root / "Pendulum-v1" / "1"


def test_run_directory(run):
    config = json.loads((run / "config.json").read_text())
    assert (config["env_id"], config["seed"], config["total_timesteps"]) == ("Pendulum-v1", 0, 400)
    assert config["config"]["hidden"] == [8]
    assert config["config"]["gamma"] == 0.98  # the preset's
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["200", "400", "best"]
    assert [row["timesteps"] for row in read_table(run / "evaluations.csv")] == ["200", "400"]
    assert [row["length"] for row in read_table(run / "episodes.csv")] == ["200", "200"]
    metrics = read_table(run / "metrics.csv")
    assert float(metrics[-1]["n_updates"]) == 350
    assert float(metrics[-1]["critic_loss"]) > 0
    assert float(metrics[-1]["fps"]) > 0
    assert (run / "learning_curve.png").stat().st_size > 10_000


def test_tensorboard_tags_are_stable_baselines3s(run):
    tags = {
        value.tag
        for path in run.glob("events.out.tfevents.*")
        for event in v1.train.summary_iterator(str(path))
        for value in event.summary.value
    }
    expected = {"rollout/ep_rew_mean", "rollout/ep_len_mean", "time/fps", "train/critic_loss", "train/actor_loss"}
    assert expected | {"eval/mean_reward", "eval/mean_ep_length", "train/n_updates"} <= tags


def test_evaluate_json_is_alone_on_stdout(run, capsys):
    status, out, _ = command("evaluate", run, "--episodes", 3, "--json", capsys=capsys)
    summary = json.loads(out)
    assert status == 0
    assert (summary["episodes"], summary["timesteps"], summary["mean_length"]) == (3, 400, 200.0)
    assert summary["ci95_low"] <= summary["mean_return"] <= summary["ci95_high"]
    again = json.loads(command("evaluate", run, "--episodes", 3, "--json", capsys=capsys)[1])
    assert again == summary
    other = json.loads(command("evaluate", run, "--episodes", 3, "--json", "--seed", 5, capsys=capsys)[1])
    assert other["mean_return"] != summary["mean_return"]
    assert (summary["seed"], other["seed"]) == (2_000_000, 5)  # the run's own seed is 0
    agent = DDPG.load(run)
    for printed in (summary, other):
        with contextlib.closing(gym.make("Pendulum-v1")) as env:
            assert evaluate(agent, env, 3, printed["seed"]).mean_return == printed["mean_return"]
    status, out, _ = command("evaluate", run, "--episodes", 1, capsys=capsys)
    assert (status, "Pendulum-v1 after 400 steps: mean return" in out) == (0, True)
    assert command("evaluate", run, "--episodes", 0, capsys=capsys)[0] == 2
    earlier = json.loads(command("evaluate", run, "--episodes", 3, "--json", "--checkpoint", 200, capsys=capsys)[1])
    assert earlier["timesteps"] == 200


def test_evaluate_takes_the_newest_checkpoint_of_a_run_that_is_training(run, tmp_path, capsys, monkeypatch):
    """The training process has replaced the checkpoints since the command started."""
    moving = tmp_path / "1"
    shutil.copytree(run, moving)
    newest, made = moving / "checkpoints" / "400", saved_policy.make_env

    def make_env(*arguments):
        newest.rename(newest.with_name("401"))
        return made(*arguments)

    monkeypatch.setattr(saved_policy, "make_env", make_env)
    status, out, _ = command("evaluate", moving, "--episodes", 1, "--json", capsys=capsys)
    assert (status, json.loads(out)["checkpoint"]) == (0, "401")


@pytest.mark.slow
def test_watch_uses_the_given_checkpoint_and_seed(run, capsys, monkeypatch):
    shown = []

    def watch_episodes(agent, renderer, episodes, seed, title):
        shown.append((agent.num_timesteps, renderer.spaces[1].high.item(), episodes, seed, title))

    monkeypatch.setattr("ddpg.runs.saved_policy.watch_episodes", watch_episodes)
    assert command("watch", run, capsys=capsys)[0] == 0
    assert command("watch", run, "--episodes", 3, "--seed", 7, "--checkpoint", 200, capsys=capsys)[0] == 0
    assert [row[:4] for row in shown] == [(400, 2.0, 1, 2_000_000), (200, 2.0, 3, 7)]  # Pendulum's torque
    assert all("Pendulum-v1 after" in row[4] for row in shown)


def test_export_names_the_unit_of_the_difference(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "of the actions' half-range\n" in command("export", run, "-o", tmp_path / "policy", capsys=capsys)[1]
    assert "of the largest of the values\n" in command("export", "zoo:CartPole-v1", capsys=capsys)[1]


def test_a_policy_is_exported_from_a_run(run, tmp_path, capsys):
    policy = tmp_path / "policy"
    status, out, _ = command("export", run, "-o", policy, "--checkpoint", "200", "--json", capsys=capsys)
    summary = json.loads(out)
    assert status == 0
    assert (summary["path"], summary["format"], summary["timesteps"]) == (str(policy), "numpy", 200)
    assert 0 <= summary["difference"] < 1e-5
    observation = np.full(3, 0.3, np.float32)
    expected = ddpg.DDPG.load(run, which="200").predict(observation)[0]
    np.testing.assert_array_equal(ddpg.load_policy(policy).predict(observation)[0], expected)
    status, out, err = command("export", run, "-o", policy, "--format", "pickle", capsys=capsys)
    assert (status, err.count("\n")) == (2, 1)
    assert all(word in err for word in ("format='pickle'", *FORMATS))
    assert "say where to write" in command("export", run / "checkpoints" / "200", capsys=capsys)[2]
    assert command("export", run, capsys=capsys)[0] == 0
    assert (run / "policy" / "policy.safetensors").exists()


def test_runs_are_recorded_listed_and_plotted(run, tmp_path, monkeypatch, capsys):
    pytest.importorskip("pygame")
    few_frames(monkeypatch)
    video = tmp_path / "a.gif"
    status, out, _ = command("record", run, "-o", video, "--json", "--seed", 3, capsys=capsys)
    summary = json.loads(out)
    assert status == 0
    assert (summary["path"], summary["timesteps"], summary["seed"]) == (str(video), 400, 3)
    assert video.read_bytes()[:3] == b"GIF"
    (row,) = json.loads(command("runs", run, "--json", capsys=capsys)[1])["runs"]
    assert (row["run"], row["state"], row["timesteps"]) == (str(run), "finished", 400)
    assert row["options"]["hidden"] == [8]
    assert f"{run}  DDPG" in command("runs", run, capsys=capsys)[1]
    picture = tmp_path / "a.png"
    (curve,) = json.loads(command("plot", run, "-o", picture, "--json", capsys=capsys)[1])["curves"]
    assert (curve["label"], curve["times"]) == ("DDPG", [200, 400])
    assert curve["centre"] == [float(row["mean_return"]) for row in read_table(run / "evaluations.csv")]
    assert f"The picture is in {picture}" in command("plot", run, "-o", picture, capsys=capsys)[1]


def test_paths_refuses_bad_pictures_and_discrete_actions(tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patch:  # before anything is computed
        patch.setattr("ddpg.cli.inspect.import_from_working_directory", lambda *_: pytest.fail("work has started"))
        for name in ("a.v2", "nowhere/a.png"):
            status, _, errors = command("paths", "Pendulum-v1", "--picture", tmp_path / name, capsys=capsys)
            assert (status, name in errors) == (2, True)
    status, _, errors = command("paths", "CartPole-v1", capsys=capsys)
    assert status == 2
    assert all(part in errors for part in ("DDPG", "CartPole-v1", "Discrete(2)", "Pendulum-v1")), errors


def test_damaged_checkpoint_is_one_line(run, tmp_path, capsys):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    path = copy / "checkpoints" / "400" / "variables.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    status, _, err = command("evaluate", copy, capsys=capsys)
    assert status == 4
    assert "does not match its checksum" in err


def start_training(*arguments, folder, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "ddpg", "train", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "120"},
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_saves_and_resume_continues(tmp_path, number, capsys):
    arguments = ["Pendulum-v1", *TINY, "--seed", "0", "--total-timesteps", "1000000", "--evaluation-episodes", "1"]
    process = start_training(*arguments, folder=tmp_path)
    run = tmp_path / "runs" / "Pendulum-v1" / "1"
    begun = read_until(process.stderr, r"([6-9]\d\d|\d{4,})/1000000 ")  # three episodes, on the progress bar
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    err = begun + err
    assert process.returncode == 128 + number, err
    assert "Pendulum-v1:" in err  # the progress bar
    assert "step/s" in err
    assert f"ddpg: {number.name}: the run will be saved" in err
    stopped = int(run_directory.checkpoints(run)[-1].name)
    assert f"saved at {stopped:,} of 1,000,000 steps; it goes on as if it had not been interrupted" in err
    output = out + err
    assert (output.count("ddpg resume"), output.count("mean return"), output.count("evaluation return")) == (1, 1, 0)
    assert f"Everything is in {run.relative_to(tmp_path)}" in out
    assert stopped % 200 == 0
    assert (run / "learning_curve.png").exists()

    assert main(["resume", str(run), "--total-timesteps", str(stopped + 100), "--no-progress-bar"]) == 0
    assert [int(row["timesteps"]) for row in read_table(run / "evaluations.csv")] == [stopped + 100]
    timesteps = [int(row["timesteps"]) for row in read_table(run / "metrics.csv")]
    assert timesteps == sorted(timesteps)
    assert timesteps[-1] == stopped + 100
    assert main(["resume", str(run)]) == 2  # its goal is reached
    assert f"has reached its {stopped + 100} steps" in capsys.readouterr().err
    assert main(["resume", str(run), "--total-timesteps", str(stopped)]) == 2
    err = capsys.readouterr().err
    assert f"total_timesteps={stopped} is less than the {stopped + 100} steps" in err
    assert "has reached" not in err


def test_a_warning_is_one_line_without_its_source(monkeypatch, capsys):
    def warned(*words):
        warnings.warn("the first line\nand the second", stacklevel=2)
        warnings.warn("an old name", FutureWarning, stacklevel=2)
        gym.logger.warn("in colour")
        warnings.warn("in colour", stacklevel=2)

    monkeypatch.setattr("ddpg.cli.main._run", warned)
    with warnings.catch_warnings():  # pytest records warnings
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, category, *place, **_: sys.stderr.write(
            warnings.formatwarning(message, category, *place)
        )
        assert main([]) == 0
    expected = "ddpg: warning: the first line and the second\nddpg: warning: FutureWarning: an old name\n"
    expected += "ddpg: warning: in colour\n"
    assert capsys.readouterr().err == expected


@pytest.mark.slow
def test_signals_are_answered_while_tensorflow_compiles(tmp_path):
    # No Python code runs in the main thread while the first update is compiled.
    slow = ["--hidden", *["64"] * 8, "--updates-per-call", "1", "--learning-starts", "0", "--batch-size", "8"]
    process = start_training("Pendulum-v1", *slow, "--seed", "0", folder=tmp_path)
    read_until(process.stderr, r" 0/10000 ")
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    read_until(process.stderr, r"SIGTERM: the run will be saved")
    process.send_signal(signal.SIGINT)
    messages = process.communicate(timeout=20)[1]
    assert not re.search(r" [1-9]\d*/10000 ", messages)
    assert "SIGINT again: ended at once; go on from step 0 with: ddpg resume runs/Pendulum-v1/1" in messages
    assert process.returncode == 130
    assert [path.name for path in run_directory.checkpoints(tmp_path / "runs" / "Pendulum-v1" / "1")] == ["0"]


@pytest.mark.slow
@pytest.mark.usefixtures("hangup_not_ignored")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_all_processes_of_a_vector_environment(tmp_path, number):
    steps = ["--total-timesteps", "1000000", "--evaluation-interval", "500", "--evaluation-episodes", "1"]
    vector = ["--n-envs", "2", "--vectorization", "async"]
    process = start_training("Pendulum-v1", *TINY, *vector, *steps, folder=tmp_path, start_new_session=True)
    run = tmp_path / "runs" / "Pendulum-v1" / "1"
    read_until(process.stderr, r"[5-9]\d\d/1000000 ")
    if number == signal.SIGKILL:  # only the parent: the others must notice its death
        process.kill()
    else:
        os.killpg(process.pid, number)
    messages = process.communicate(timeout=60)[1]
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number), messages
    assert "ddpg: error" not in messages
    deadline = time.monotonic() + 60
    while subprocess.run(["pgrep", "-g", str(process.pid)], capture_output=True).stdout:
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.2)
    stopped = int(run_directory.checkpoints(run)[-1].name)
    assert main(["resume", str(run), "--total-timesteps", str(stopped + 100), "--no-progress-bar"]) == 0


@pytest.mark.slow
def test_a_signal_during_the_start_leaves_no_files(tmp_path):
    process = start_training("Pendulum-v1", folder=tmp_path)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    messages = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "Traceback" not in messages
    if "SIGINT: the run will be saved" in messages:  # unless it came before the handler was installed
        assert "ddpg: interrupted: nothing was begun" in messages
    assert not (tmp_path / "runs").exists()


def run_help(stdout, unbuffered):
    """Return the status and stderr of ``ddpg --help``; if buffered, Python writes stdout when the process ends."""
    command, variables = [sys.executable, "-m", "ddpg", "--help"], os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=variables)
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_no_error(unbuffered):
    """As ``ddpg --help | grep -q train`` with pipefail."""
    reading, writing = os.pipe()
    os.close(reading)
    assert run_help(writing, unbuffered) == (0, "")
    os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout_is_one_line(unbuffered):
    with Path("/dev/full").open("w") as full:
        status, error = run_help(full, unbuffered)
    assert (status, error) == (4, "ddpg: error: No space left on device (ENOSPC); nothing else was changed\n")


@pytest.mark.slow
def test_a_reader_that_leaves_does_not_end_the_run(tmp_path):
    """As ``ddpg train ... 2>&1 | head -c 100``."""
    process = start_training(
        *("Pendulum-v1", *TINY, "--total-timesteps", "600", "--evaluation-interval", "200"),
        *("--evaluation-episodes", "1"),
        folder=tmp_path,
    )
    process.stderr.read(100)
    process.stderr.close()
    process.stdout.close()
    assert process.wait(120) == 0
    assert read_table(tmp_path / "runs/Pendulum-v1/1/evaluations.csv")[-1]["timesteps"] == "600"
    assert (tmp_path / "runs/Pendulum-v1/1/learning_curve.png").exists()


@pytest.mark.parametrize("gpus", [0, 1])
def test_operations_are_deterministic_on_a_gpu(gpus, monkeypatch):
    """Otherwise a GPU adds numbers in another order in every run."""
    calls = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind] * gpus)
    monkeypatch.setattr(tf.config.experimental, "enable_op_determinism", lambda: calls.append("deterministic"))
    import_with_tensorflow(say=False)
    assert calls == ["deterministic"] * gpus


def test_an_interrupt_while_modules_are_imported_is_one_line(monkeypatch, capsys):
    class Interrupting:
        def find_spec(self, name, path, target=None):
            if name == "ddpg.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "ddpg.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert __main__.main() == 130
    assert capsys.readouterr().err == "ddpg: interrupted\n"
