"""Runs that learn from a data set: updates without environment steps, exact resuming, and fine-tuning."""

import contextlib
import shutil
import signal

import gymnasium as gym
import numpy as np
import pytest
from agent_options import TINY
from environments import Counting
from refusals import refuses
from remains import Killed, assert_same, saved, what_is_left

from ddpg import DDPG, DDPGConfig, DQNConfig, UsageError, load_dataset, resume, train
from ddpg.agents import resource_limits
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.checkpoints import checkpoint
from ddpg.cli.main import main
from ddpg.cli.train import Train
from ddpg.config.options import from_toml
from ddpg.config.presets import read_recipe
from ddpg.errors import EnvironmentFault
from ddpg.runs import recorder, run_directory, run_loop, signals
from ddpg.runs.evaluation import Evaluation, evaluate
from ddpg.runs.run_directory import read_config
from ddpg.runs.run_loop import GracefulStop
from ddpg.runs.tables import read_table


class Resetting(Counting):
    """A reset restores the initial state."""

    def reset(self, *, seed=None, options=None):
        self.episode = -1
        return super().reset(seed=seed)


if "Offline-v0" not in gym.registry:
    gym.register("Offline-v0", lambda **_: Resetting(7, truncate=True), disable_env_checker=True)
if "OfflineChoice-v0" not in gym.registry:
    choices = gym.spaces.Discrete(3)
    gym.register("OfflineChoice-v0", lambda **_: Counting(7, action_space=choices), disable_env_checker=True)

CONFIG = DDPGConfig(
    **TINY,
    **{"learning_starts": 0, "updates_per_call": 6, "updates_per_step": 0.5, "target": "online", "bc_alpha": 2.5},
    **{"normalize_observations": True, "learning_rate_schedule": "linear", "prioritised": "proportional", "n_steps": 2},
)
# Half of each minibatch comes from the data, the ring overwrites some of them, and the cloning weight decreases.
MIXED = CONFIG.replace(
    prioritised=None, dataset_share=0.5, bc_final=0.25, bc_steps=30, buffer_size=60, learning_starts=90
)
CONFIGS = {"fine_tuned": CONFIG, "mixed": MIXED}
RUN = {"seed": 5, "total_timesteps": 100, "evaluation_interval": 25, "evaluation_episodes": 2, "progress_bar": False}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Five episodes of the environment with random actions."""
    path, rng = tmp_path_factory.mktemp("data") / "data.npz", np.random.default_rng(0)
    step, count = np.arange(35) % 7, 35
    states = np.stack([np.arange(count) // 7, step], axis=1).astype(float)
    arrays = {"observations": states, "next_observations": states + np.array([0, 1]), "rewards": step + 1.0}
    flags = {"terminals": np.zeros(count, bool), "timeouts": step == 6}
    np.savez(path, **arrays, **flags, actions=rng.uniform(-2, 4, (count, 1)))
    return path


@contextlib.contextmanager
def rows_checked():
    """Record the rows of memory for which a run asks whether they fit."""
    rows = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource_limits, "check_memory", lambda config, spaces, number=0: rows.add(number))
        yield rows


@pytest.fixture(scope="module")
def offline(data, tmp_path_factory):
    with rows_checked() as rows:
        run = train("Offline-v0", CONFIG, dataset=data, root=tmp_path_factory.mktemp("offline"), **RUN)
    assert rows - {0} == {35}  # those of the data: the updates need no room
    return run


@pytest.fixture(scope="module")
def fine_tuned(data, tmp_path_factory):
    root = tmp_path_factory.mktemp("fine_tuned")
    with rows_checked() as rows:
        run = train("Offline-v0", CONFIG, dataset=data, offline_timesteps=40, root=root, **RUN)
    assert rows - {0} == {35 + 60}  # and those of the run's own steps
    return run


@pytest.fixture(scope="module")
def mixed(data, tmp_path_factory):
    return train("Offline-v0", MIXED, dataset=data, offline_timesteps=40, root=tmp_path_factory.mktemp("mixed"), **RUN)


def test_offline_timesteps_are_updates_without_environment_steps(offline, data):
    """100 updates whatever ``updates_per_step`` is, no training episode, and only the 35 rows of data in memory."""
    manifest, groups = saved(offline)
    assert (manifest["num_timesteps"], manifest["num_updates"], manifest["owed_updates"]) == (100, 100, 0)
    np.testing.assert_allclose(groups["replay"]["rewards"][:, 0], load_dataset(data).rewards)
    assert read_table(offline / "episodes.csv") == []
    rows = read_table(offline / "evaluations.csv")
    assert [int(row["timesteps"]) for row in rows] == [30, 54, 78, 100]  # the ends of calls
    assert {float(row["mean_return"]) for row in rows} == {28.0}
    metrics = read_table(offline / "metrics.csv")
    updates = [(int(row["timesteps"]), float(row["n_updates"])) for row in metrics]
    assert updates[-1] == (100, 100)
    assert all(steps == made for steps, made in updates)
    document = run_directory.read_config(offline)
    assert (document["dataset"], document["offline_timesteps"]) == (str(data), None)


def test_an_offline_run_equals_remember_and_update(offline, data):
    agent = DDPG(gym.make("Offline-v0"), CONFIG, seed=5)
    agent.remember(*load_dataset(data))
    for start in range(0, 100, 6):
        agent.num_timesteps += (count := min(6, 100 - start))
        agent.schedule_learning_rates(1 - agent.num_timesteps / 100)
        agent.update(count)
    expected = agent.get_parameters()
    found = saved(offline)[1]["variables"]
    np.testing.assert_equal(found, expected)


def killed_at(monkeypatch, updates):
    """Kill the run in the call of ``update`` that starts after ``updates`` updates."""
    update = OffPolicyAgent.update

    def update_or_die(agent, n=1):
        if agent.num_updates == updates:
            raise Killed
        return update(agent, n)

    monkeypatch.setattr(OffPolicyAgent, "update", update_or_die)


def stopped_at(monkeypatch, steps):
    """Send the run a signal after ``steps`` steps."""
    on_step = GracefulStop.on_step

    def signalled(self, agent):
        self._request.number = 15 if agent.num_timesteps == steps else self._request.number
        return on_step(self, agent)

    monkeypatch.setattr(GracefulStop, "on_step", signalled)


def test_a_run_stopped_between_updates_resumes_exactly(data, offline, tmp_path, monkeypatch, capsys):
    """After a signal, then after a kill, both without the data file: the checkpoint holds the data."""
    path = tmp_path / "data.npz"
    path.write_bytes(data.read_bytes())
    with monkeypatch.context() as patch:
        stopped_at(patch, 36)
        run = train("Offline-v0", CONFIG, dataset=path, root=tmp_path, **RUN)
    assert run_directory.checkpoints(run)[-1].name == "36"
    assert "as if it had not been interrupted" in capsys.readouterr().err
    path.unlink()
    with monkeypatch.context() as patch:
        killed_at(patch, 60)
        with pytest.raises(Killed):
            resume(run, progress_bar=False)
    resume(run, progress_bar=False)
    assert_same(run, offline)


@pytest.mark.slow
@pytest.mark.parametrize(("run", "at"), [("fine_tuned", 36), ("fine_tuned", 58), ("mixed", 58)])
def test_a_killed_run_resumes_exactly(run, at, data, tmp_path, monkeypatch, request):
    """Even without the data file."""
    uninterrupted = request.getfixturevalue(run)
    path = tmp_path / "data.npz"
    path.write_bytes(data.read_bytes())
    with monkeypatch.context() as patch:
        killed_at(patch, at)
        with pytest.raises(Killed):
            train("Offline-v0", CONFIGS[run], dataset=path, root=tmp_path, offline_timesteps=40, **RUN)
    path.unlink()
    resume(tmp_path / "Offline-v0" / "1", progress_bar=False)
    assert_same(tmp_path / "Offline-v0" / "1", uninterrupted)


def test_fine_tuning_steps_the_environment(fine_tuned):
    """40 updates, then 60 steps with half an update each; evaluations then wait for the end of an episode."""
    manifest, groups = saved(fine_tuned)
    assert (manifest["num_timesteps"], manifest["num_updates"]) == (100, 40 + 30)
    assert len(groups["replay"]["rewards"]) == 35 + 60
    ends = [int(row["timesteps"]) for row in read_table(fine_tuned / "episodes.csv")]
    assert ends == [47, 54, 61, 68, 75, 82, 89, 96]
    evaluations = [int(row["timesteps"]) for row in read_table(fine_tuned / "evaluations.csv")]
    assert evaluations == [30, 54, 75, 100]


@pytest.mark.slow
def test_data_replace_the_random_steps(fine_tuned, data, tmp_path):
    """The steps in the environment equal those of a run without random steps, although ``learning_starts`` is later."""
    late = CONFIG.replace(learning_starts=1_000)
    run = train("Offline-v0", late, dataset=data, offline_timesteps=40, root=tmp_path, **RUN)
    (manifest, groups), (usual, expected) = saved(run), saved(fine_tuned)
    assert manifest["num_updates"] == usual["num_updates"] == 40 + 30
    for group in ("variables", "replay"):
        np.testing.assert_equal(groups[group], expected[group])


def test_the_memory_distinguishes_data_from_the_runs_own_steps(mixed):
    """In a ring of 60 rows, the 60 steps overwrite all 35 rows of data."""
    manifest, groups = saved(mixed)
    replay = groups["replay"]
    assert (manifest["num_timesteps"], manifest["own_steps"]) == (100, 60)
    assert int(replay["position"]) == 35
    assert not replay["recorded"].any()
    halfway = checkpoint.read(next(path for path in run_directory.checkpoints(mixed) if path.name != "100"))
    steps = halfway[0]["num_timesteps"] - 40
    assert halfway[1]["replay"]["recorded"].sum() == 35 - max(0, steps - 25)


@pytest.mark.parametrize(("after", "steps"), [(-5.0, 40), pytest.param(-2.0, 100, marks=pytest.mark.slow)])
def test_a_fine_tuned_run_keeps_the_better_policy(after, steps, data, tmp_path, monkeypatch, capsys):
    """The policy before fine-tuning is better if the last one returns less in episodes that no evaluation had.

    If both return the same, as in ``fine_tuned``, it is not.
    """
    episodes = []

    def judged(policy, env, count, seed):
        evaluation = evaluate(policy, env, 1, seed)
        if seed == 5 + 3_000_000:
            episodes.append((policy.num_timesteps, count))
            return Evaluation(np.full(count, -3.0 if policy.num_timesteps == 40 else after), np.full(count, 7))
        return evaluation

    monkeypatch.setattr(recorder, "evaluate", judged)
    run = train("Offline-v0", CONFIG, dataset=data, offline_timesteps=40, root=tmp_path, **RUN)
    assert episodes == [(40, 20), (100, 20)]
    found = {which: saved(run, which) for which in ("offline", "better", "latest")}
    assert {which: manifest["num_timesteps"] for which, (manifest, _) in found.items()} == {
        **{"offline": 40, "better": steps, "latest": 100}
    }
    kept, expected = (found[which][1]["variables"] for which in ("better", "offline" if steps == 40 else "latest"))
    np.testing.assert_equal(kept, expected)
    err = capsys.readouterr().err
    assert "-3 after 40 updates" in err
    assert f"{after:g} after 60 more steps" in err
    assert DDPG.load(run, which="better").num_timesteps == steps
    with refuses(UsageError, "'better' best, offline and better"):
        resume(run, which="better", progress_bar=False)


class Interfering(Resetting):
    """Calls ``event`` in every step of the episodes in which two policies are compared at the end of a run."""

    event = None

    def step(self, action):
        if Interfering.event is not None and self.np_random_seed == RUN["seed"] + 3_000_000:
            Interfering.event()
        return super().step(action)


if "OfflineInterfering-v0" not in gym.registry:
    gym.register("OfflineInterfering-v0", lambda **_: Interfering(7, truncate=True), disable_env_checker=True)


def fail():
    raise RuntimeError("a cable came loose")


def stop():
    Interfering.event = None  # a second signal would end this process
    with signals.stop_on_signals() as request:  # that of the run
        signal.raise_signal(signal.SIGTERM)
        assert request.came(within=60.0)  # another thread receives it, perhaps after the last of these steps


@pytest.mark.parametrize("fails", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_unfinished_choice_of_the_better_policy_is_made_on_resume(
    fails, fine_tuned, data, tmp_path, monkeypatch, capsys
):
    """A signal leaves it unfinished, and then an environment that fails. The evaluation at the end is made, too."""
    monkeypatch.setattr(run_loop, "PATIENCE", 0.0)
    run = tmp_path / "OfflineInterfering-v0" / "1"
    with monkeypatch.context() as patch:
        patch.setattr(Interfering, "event", staticmethod(stop))
        train("OfflineInterfering-v0", CONFIG, **RUN, dataset=data, offline_timesteps=40, root=tmp_path)
        assert not (run / "checkpoints" / "better").exists()
        if fails:
            patch.setattr(Interfering, "event", staticmethod(fail))
            with pytest.raises(EnvironmentFault):
                resume(run, progress_bar=False)
    assert run_directory.checkpoints(run)[-1].name == "100"
    assert not (run / "checkpoints" / "better").exists()
    capsys.readouterr()
    resume(run, progress_bar=False)
    assert "after 60 more steps" in capsys.readouterr().err
    assert_same(run, fine_tuned)


@pytest.mark.parametrize(("step", "removed"), [(30, {"offline", "better"}), (60, {"better"}), (100, set())])
def test_going_back_removes_the_policies_of_later_steps(step, removed, fine_tuned, tmp_path):
    """They would pass for those of the run as it goes on until it reaches their steps, if it does."""
    run = shutil.copytree(fine_tuned, tmp_path / "run")
    assert checkpoint.read(run / "checkpoints" / "better")[0]["num_timesteps"] == 100
    before = {path.name for path in (run / "checkpoints").iterdir()}
    numbered = {path.name for path in run_directory.checkpoints(run) if int(path.name) > step}
    run_directory.remove_later(run, step)
    assert before - {path.name for path in (run / "checkpoints").iterdir()} == removed | numbered


@pytest.mark.slow
def test_a_run_without_fine_tuning_has_no_checkpoint_better(offline, data, tmp_path):
    run = train(
        "Offline-v0", CONFIG, dataset=data, root=tmp_path, **RUN | {"total_timesteps": 50}, offline_timesteps=50
    )
    assert not (run / "checkpoints" / "better").exists()
    assert not (offline / "checkpoints" / "offline").exists()
    with refuses(UsageError, "no checkpoint better offline"):
        DDPG.load(run, which="better")


@pytest.mark.slow
def test_an_offline_run_can_be_resumed_in_the_environment(offline, tmp_path, data):
    """It equals a run with ``offline_timesteps`` from the start, if the learning rate is constant."""
    constant = CONFIG.replace(learning_rate_schedule="constant")
    runs = []
    for name, options in (("at once", {"total_timesteps": 80}), ("later", {"total_timesteps": 50})):
        until = {"offline_timesteps": 50} if name == "at once" else {}
        run = train("Offline-v0", constant, dataset=data, root=tmp_path / name, **RUN | options | until)
        if name == "later":
            assert saved(run)[0]["num_updates"] == 50
            resume(run, offline_timesteps=50, total_timesteps=80, progress_bar=False)
            assert run_directory.read_config(run)["offline_timesteps"] == 50
        runs.append(run)
    np.testing.assert_equal(*(saved(run)[1]["variables"] for run in runs))
    manifest = saved(runs[0])[0]
    assert manifest["num_updates"] + manifest["owed_updates"] == 50 + 15


def files_of(run):
    return {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("run", "which", "given", "learned"),
    [
        ("fine_tuned", "latest", 41, 40),
        ("fine_tuned", "latest", 39, 40),
        ("fine_tuned", "latest", 120, 40),
        ("fine_tuned", "75", 60, 40),
        ("offline", "78", 77, 78),
    ],
)
def test_the_end_of_offline_learning_cannot_be_changed(run, which, given, learned, tmp_path, request):
    """The checkpoints ``offline`` and ``better`` depend on it. Nothing is written."""
    copy = shutil.copytree(request.getfixturevalue(run), tmp_path / "run")
    before = files_of(copy)
    with refuses(UsageError, f"offline_timesteps={given} {learned} steps data give {learned} leave"):
        resume(copy, which=which, offline_timesteps=given, total_timesteps=150, progress_bar=False)
    assert files_of(copy) == before


@pytest.mark.parametrize(
    ("run", "given", "own"),
    [
        ("fine_tuned", 40, 70),
        *(pytest.param("offline", *case, marks=pytest.mark.slow) for case in ((102, 8), (100, 10))),
    ],
)
def test_offline_timesteps_can_be_repeated_or_extended_on_resume(run, given, own, tmp_path, request):
    copy = shutil.copytree(request.getfixturevalue(run), tmp_path / "run")
    with rows_checked() as rows:
        resume(copy, offline_timesteps=given, total_timesteps=110, progress_bar=False)
    assert rows - {0} == {35 + own}
    found = {which: saved(copy, which)[0] for which in ("offline", "better", "latest")}
    assert found["offline"]["num_timesteps"] == given
    assert found["latest"]["num_timesteps"] == 110


def test_dqn_learns_from_a_data_set(data, tmp_path):
    arrays = dict(np.load(data)) | {"actions": np.arange(35) % 3}
    np.savez(tmp_path / "choices.npz", **arrays)
    config = DQNConfig(hidden=(4,), batch_size=4, jit=False)
    options = RUN | {"total_timesteps": 40, "root": tmp_path, "dataset": tmp_path / "choices.npz"}
    manifest, groups = saved(train("OfflineChoice-v0", config, **options))
    assert (manifest["num_updates"], manifest["kind"]) == (40, "DQN")
    np.testing.assert_array_equal(groups["replay"]["actions"][:, 0], np.arange(35) % 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dataset": None, "offline_timesteps": 5}, "offline_timesteps=5 --dataset"),
        ({"offline_timesteps": -1}, "offline_timesteps=-1 0"),
        ({"offline_timesteps": 101}, "offline_timesteps=101 100 total_timesteps"),
        ({"offline_timesteps": 1.5}, "offline_timesteps=1.5"),
        ({"collector": "process", "workers": 2}, "collector='process'"),
        ({"config": CONFIG.replace(buffer_size=30)}, "35 buffer_size=30"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words, data, tmp_path):
    arguments = {"config": CONFIG, "dataset": data, "root": tmp_path / "runs", **RUN} | options
    with refuses(UsageError, words):
        train("Offline-v0", **arguments)
    assert not list(tmp_path.rglob("config.json"))


def test_the_default_recipe_with_a_data_set(data):
    """TD3+BC's; flags override its options, and ``--recipe`` replaces it."""

    def config_of(*words):
        return Train.parse(["Pendulum-v1", "--dataset", str(data), *words], "ddpg train").args[0]

    usual = DDPGConfig(**from_toml(DDPGConfig, read_recipe("td3_bc"), "it"))
    assert config_of() == usual
    assert config_of("--bc-alpha", "0", "--bc-only") == usual.replace(bc_alpha=0.0, bc_only=True)
    assert config_of("--recipe", "ddpg") == DDPGConfig()
    assert (
        Train.parse(["CartPole-v1", "--dataset", str(data)], "ddpg train").args[0]
        == Train.parse(["CartPole-v1"], "ddpg train").args[0]
    )


def test_the_command_line(data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = "--hidden 4 --batch-size 4 --no-jit --n-critics 1 --policy-delay 1 --optimizer sgd --total-timesteps 64"
    small += " --evaluation-interval 32 --evaluation-episodes 1"
    training = ["train", "Offline-v0", "--dataset", str(data), *small.split(), "--no-progress-bar"]
    assert main([*training, "--offline-timesteps", "32"]) == 0
    run = tmp_path / "runs" / "Offline-v0" / "1"
    manifest = saved(run)[0]
    assert manifest["num_updates"] == 64
    assert manifest["config"]["bc_alpha"] == 2.5
    assert [row["timesteps"] for row in what_is_left(run)["episodes"]] == ["39", "46", "53", "60"]
    capsys.readouterr()
    assert main(["resume", str(run), "--offline-timesteps", "40", "--total-timesteps", "80"]) == 2
    assert "offline_timesteps=40" in capsys.readouterr().err


@pytest.mark.slow
def test_the_default_interval_allows_for_episodes_only_in_the_environment(data, tmp_path):
    """A twentieth of 100 steps is 5; with steps in the environment, the interval is that of an episode, 7."""
    gym.register("OfflineLimited-v0", lambda **_: Resetting(7), max_episode_steps=7, disable_env_checker=True)
    options = {"dataset": data, "root": tmp_path, **RUN, "evaluation_interval": None}
    intervals = [
        read_config(train("OfflineLimited-v0", CONFIG, offline_timesteps=offline, **options))["evaluation_interval"]
        for offline in (None, 40)
    ]
    assert intervals == [5, 7]
