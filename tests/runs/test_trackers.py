"""Runs are logged to W&B, MLflow or Trackio by name; fake modules record the calls."""

import json
import shlex
import signal
import sys
import types

import pytest
from agent_options import TINY
from refusals import refuses

import ddpg
from ddpg import DDPGConfig, TrackerCallback, UsageError
from ddpg.cli.main import main
from ddpg.runs import run_loop
from ddpg.runs.trackers import TRACKERS, MLflow, as_tracker

CONFIG = DDPGConfig(**TINY, learning_starts=4, updates_per_call=4)
RUN = {"seed": 0, "total_timesteps": 20, "evaluation_interval": 5, "evaluation_episodes": 1, "progress_bar": False}


def fake_module(name):
    """Return a module with the functions of a tracker, and the list of calls."""
    calls = []
    module = types.ModuleType(name)

    def recording(call, names):
        return lambda *values, **options: calls.append((call, dict(zip(names, values, strict=False)) | options))

    signatures = {"init": (), "log": ("scalars",), "finish": ()}
    if name == "mlflow":
        signatures = {
            **{"set_experiment": ("project",), "start_run": (), "log_params": ("config",)},
            **{"log_metrics": ("scalars",), "end_run": ()},
        }
    for call, names in signatures.items():
        setattr(module, call, recording(call, names))
    return module, calls


@pytest.fixture(params=TRACKERS)
def tracker(request, monkeypatch):
    module, calls = fake_module(request.param)
    monkeypatch.setitem(sys.modules, request.param, module)
    return request.param, calls


def options_of(calls, *names):
    return [options for name, options in calls if name in names]


@pytest.mark.parametrize(
    "tracker", [pytest.param(name, marks=[pytest.mark.slow] * (name == "trackio")) for name in TRACKERS], indirect=True
)
def test_a_run_is_logged_to_the_tracker(tracker, tmp_path):
    name, calls = tracker
    run = ddpg.train("Pendulum-v1", CONFIG, root=tmp_path, track=name, **RUN)
    begun = {}
    for options in options_of(calls, "init", "set_experiment", "start_run", "log_params"):
        begun |= options
    assert begun["project"] == "ddpg"
    assert "Pendulum-v1/1" in (begun.get("name"), begun.get("run_name"))
    assert (begun["config"]["env_id"], begun["config"]["seed"], begun["config"]["hidden"]) == ("Pendulum-v1", 0, [4])
    logged = options_of(calls, "log", "log_metrics")
    assert [row["step"] for row in logged if "eval/mean_reward" in row["scalars"]] == [10, 20]
    assert any("train/critic_loss" in row["scalars"] for row in logged)
    assert [row["step"] for row in logged] == sorted(row["step"] for row in logged)
    assert calls[-1][0] in ("finish", "end_run")
    assert "track" not in json.loads((run / "config.json").read_text())


@pytest.mark.parametrize(
    "tracker", [pytest.param(name, marks=[pytest.mark.slow] * (name != "mlflow")) for name in TRACKERS], indirect=True
)
def test_the_command_line_and_the_callback_take_the_name(tracker, tmp_path, monkeypatch):
    name, calls = tracker
    words = ["--hidden", "4", "--batch-size", "4", "--no-jit", "--updates-per-call", "1", "--optimizer", "sgd"]
    few = ["--total-timesteps", "8", "--evaluation-episodes", "1", "--no-progress-bar", "--root", str(tmp_path)]
    assert main(["train", "Pendulum-v1", "--track", name, *words, *few]) == 0
    assert calls[-1][0] in ("finish", "end_run")
    calls.clear()
    run = str(tmp_path / "Pendulum-v1" / "1")
    assert main(["resume", run, "--track", name, "--total-timesteps", "12", "--no-progress-bar"]) == 0
    assert [row["step"] for row in options_of(calls, "log", "log_metrics")][-1] == 12
    calls.clear()
    agent = ddpg.DDPG.load(run, env=ddpg.runs.env_factory.make_env("Pendulum-v1"))
    agent.learn(4, [TrackerCallback(name, log_interval=2, project="own")])
    assert options_of(calls, "log", "log_metrics")
    assert calls[-1][0] in ("finish", "end_run")


def test_a_tracker_that_fails_does_not_end_the_run(monkeypatch, tmp_path, capsys):
    module, _ = fake_module("wandb")

    def broken(*_, **__):
        raise ConnectionError("no server")

    module.log = broken
    monkeypatch.setitem(sys.modules, "wandb", module)
    run = ddpg.train("Pendulum-v1", CONFIG, root=tmp_path, track="wandb", **RUN)
    assert capsys.readouterr().err.count("no server") == 1
    assert (run / "checkpoints" / "20").is_dir()


def test_a_tracker_that_cannot_begin_names_the_run_and_the_command_that_resumes_it(monkeypatch, tmp_path, capsys):
    module, calls = fake_module("wandb")
    init = module.init

    def signed_out(*_, **__):
        raise PermissionError("not signed in")

    module.init = signed_out
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.chdir(tmp_path)
    few = ["--total-timesteps", "8", "--evaluation-episodes", "1", "--hidden", "4", "--no-jit", "--no-progress-bar"]
    few += ["--optimizer", "sgd", "--target", "online"]
    assert main(["train", "Pendulum-v1", "--track", "wandb", *few]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "not signed in; with that put right, go on from step 0 with: " in said
    module.init = init
    command = shlex.split(said.rpartition("with: ddpg ")[2])
    assert main([*command, "--no-progress-bar"]) == 0
    assert [row["step"] for row in options_of(calls, "log")][-1] == 8
    assert [path.name for path in (tmp_path / "runs" / "Pendulum-v1").iterdir()] == ["1"]


def test_the_command_that_resumes_a_tracked_run_names_the_tracker(monkeypatch, tmp_path, capsys):
    module, _ = fake_module("wandb")
    first = iter([signal.SIGINT])
    module.log = lambda scalars, step: [signal.raise_signal(number) for number in first]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr(run_loop, "PATIENCE", 1000.0)  # it ends with an episode on a slow machine, too
    longer = {"total_timesteps": 400, "evaluation_interval": 200}
    ddpg.train("Pendulum-v1", CONFIG, root=tmp_path, track="wandb", **RUN | longer)
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "saved at" in line]
    assert said.endswith(f"ddpg resume {tmp_path}/Pendulum-v1/1 --track wandb")


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_one_line_before_the_run_starts(name, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "Pendulum-v1", "--track", name]) == 2
    err = capsys.readouterr().err
    assert (err.count("\n"), f"pip install {name}" in err) == (1, True)
    assert not list(tmp_path.iterdir())
    with refuses(UsageError, "'wandb'"):
        as_tracker("wnadb")
    with refuses(UsageError, "tracker='wnadb'"):  # the name of the callback's argument
        TrackerCallback("wnadb")


def test_mlflow_is_recognised_by_its_functions():
    module, _ = fake_module("mlflow")
    assert isinstance(as_tracker(module), MLflow)
    other, _ = fake_module("trackio")
    assert as_tracker(other) is other
