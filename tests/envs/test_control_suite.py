"""The control suite's environments, with a fake suite computed by hand, and with dm_control if it is installed."""

import os
import subprocess
import sys

import fake_dm_control
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from refusals import refuses
from remains import Killed, assert_same, let_kills_pass

import ddpg_envs  # noqa: F401 - registers them
from ddpg import DDPGConfig, UsageError, resume, train
from ddpg.cli.main import main
from ddpg.runs import run_directory
from ddpg.runs.env_factory import make_env
from ddpg_envs.control_suite import TASKS, ControlSuiteEnv

NAMES = [f"{domain}-{task}" for domain, tasks in TASKS.items() for task in tasks]


@pytest.fixture
def fake(monkeypatch):
    """Return a function that installs a fake suite with these arguments, and returns the list of its environments."""

    def install(**arguments):
        made = []

        def load(domain, task, task_kwargs):
            made.append(fake_dm_control.Environment(task_kwargs["random"], **arguments))
            return made[-1]

        for name, module in fake_dm_control.modules(load).items():
            monkeypatch.setitem(sys.modules, name, module)
        return made

    return install


# -- with the fake suite --------------------------------------------------------------------------------------------


def test_every_task_is_registered_without_importing_dm_control():
    assert [env_id for env_id in gym.registry if env_id.startswith("dmc/")] == [f"dmc/{name}-v0" for name in NAMES]
    assert {gym.registry[f"dmc/{name}-v0"].max_episode_steps for name in NAMES} == {500}
    code = "import sys, ddpg_envs; sys.exit(any(name.startswith('dm_control') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_action_lasts_two_control_steps_and_earns_both_rewards(fake):
    made = fake()
    env = ControlSuiteEnv("cheetah", "run")
    env.reset(seed=3)
    observation, reward, terminated, truncated, _ = env.step(np.array([0.25, -0.5], np.float32))
    assert (reward, terminated, truncated) == (1 + 2, False, False)
    assert [control.tolist() for control in made[0].controls] == [[0.25, -0.5]] * 2
    assert env.step(np.zeros(2, np.float32))[1] == 3 + 4
    assert (observation.dtype, observation.shape) == (np.float32, (5,))
    assert observation.tolist() == [
        *np.random.RandomState(3).uniform(size=2).astype(np.float32).tolist(),
        2,
        0.25,
        -0.5,
    ]


def test_spaces_are_the_tasks(fake):
    fake()
    env = ControlSuiteEnv("cheetah", "run")
    assert env.observation_space == gym.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    assert env.action_space == gym.spaces.Box(np.float32([-1, -1]), np.float32([1, 1.1]), dtype=np.float32)
    assert env.metadata["render_fps"] == 50  # two control steps of 0.01 s


def test_actions_are_clipped_to_the_tasks_own_bounds(fake):
    """The task's bound, 1.1 in float64, is exceeded by 1.1 in float32."""
    made = fake()
    env = ControlSuiteEnv("cheetah", "run")
    env.reset(seed=0)
    env.step(env.action_space.high)
    env.step(np.array([-7.0, 7.0]))
    assert [control.tolist() for control in made[0].controls] == [[1, 1.1]] * 2 + [[-1, 1.1]] * 2


def test_the_time_limit_truncates(fake):
    fake(limit=4)
    env = ControlSuiteEnv("cheetah", "run")
    env.reset(seed=0)
    assert [env.step(np.zeros(2))[2:4] for _ in range(2)] == [(False, False), (False, True)]
    with refuses(gym.error.ResetNeeded, "reset()"):
        env.step(np.zeros(2))
    env.reset()
    env.step(np.zeros(2))


def test_a_discount_of_0_terminates_within_an_action(fake):
    made = fake(ends_at=3)
    env = ControlSuiteEnv("cheetah", "run")
    env.reset(seed=0)
    env.step(np.zeros(2))
    _, reward, *ends, _ = env.step(np.zeros(2))
    assert (reward, ends, len(made[0].controls)) == (3, [True, False], 3)


def test_seeds(fake):
    """A seed determines the episode, whatever came before. Without one the generator continues. Large seeds differ."""
    fake()
    env, other = ControlSuiteEnv("cheetah", "run"), ControlSuiteEnv("cheetah", "run")
    env.reset(seed=5)
    second = env.reset()[0][:2].tolist()
    generator = np.random.RandomState(5)
    generator.uniform(size=2)
    assert second == generator.uniform(size=2).astype(np.float32).tolist()
    starts = {seed: tuple(env.reset(seed=seed)[0][:2].tolist()) for seed in (0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**70)}
    assert len({*starts.values()}) == len(starts)
    for seed, start in starts.items():
        assert tuple(other.reset(seed=seed)[0][:2].tolist()) == start


@pytest.mark.parametrize("action", [0.5, [0.0], np.zeros(3), [0, np.nan], [np.inf, 0], ["a", "b"], None])
def test_an_invalid_action_is_refused_before_the_task_steps(action, fake):
    made = fake()
    env = ControlSuiteEnv("cheetah", "run")
    env.reset(seed=0)
    with refuses(UsageError, "action cheetah-run 2 finite"):
        env.step(action)
    assert made[0].controls == []


def test_the_tasks_camera_renders(fake, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    fake()
    assert ControlSuiteEnv("cheetah", "run", render_mode="rgb_array").render() == ((360, 480), 0)
    assert ControlSuiteEnv("quadruped", "run", render_mode="rgb_array").render() == ((360, 480), 2)
    assert ControlSuiteEnv("cheetah", "run").render() is None
    with refuses(UsageError, "render_mode human"):
        ControlSuiteEnv("cheetah", "run", render_mode="human")


@pytest.mark.parametrize("arguments", [("cheetah", "run", "rgb_array"), ("quadruped", "escape", None)])
@pytest.mark.parametrize("way", ["", "glfw", "true", "1", "enabled"])
def test_without_a_display_rendering_is_refused_because_mujoco_would_end_the_process(arguments, way, fake, monkeypatch):
    made = fake()
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MUJOCO_GL", way)
    with refuses(UsageError, "OpenGL display MUJOCO_GL=egl"):
        ControlSuiteEnv(*arguments)
    assert made == []
    monkeypatch.setenv("DISPLAY", ":0")
    ControlSuiteEnv(*arguments)


def test_closing_frees_the_model_once(fake):
    made = fake()
    env = ControlSuiteEnv("cheetah", "run")
    env.close()
    env.close()
    assert made[0].closed


@pytest.mark.parametrize("call", ["reset", "step", "render"])
def test_a_closed_environment_says_that_it_is_closed(call, fake, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    fake()
    env = ControlSuiteEnv("cheetah", "run", render_mode="rgb_array")
    env.reset(seed=0)
    env.close()
    with refuses(gym.error.ClosedEnvironmentError, "cheetah-run", f"{call}()", "make it again"):
        getattr(env, call)(*[np.zeros(2)] * (call == "step"))


# -- missing packages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["dm_control", "mujoco"])
def test_without_dm_control_the_error_names_the_extra(missing, monkeypatch, capsys):
    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name == "dm_control":
                raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    for name in [name for name in sys.modules if name.partition(".")[0] == "dm_control"]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["train", "dmc/cheetah-run"]) == 2
    message = capsys.readouterr().err.strip()
    assert message.count("\n") == 0
    for word in (missing, "dmc/cheetah-run", 'pip install "ddpg-paths[dmc]"'):
        assert word in message


def test_an_incompatible_mujoco_is_a_one_line_error(monkeypatch, capsys):
    def load(domain, task, task_kwargs):
        raise AttributeError("'MjModel' object has no attribute 'flex_vertedge'")

    for name, module in fake_dm_control.modules(load).items():
        monkeypatch.setitem(sys.modules, name, module)
    assert main(["train", "dmc/cheetah-run"]) == 2
    message = capsys.readouterr().err.strip()
    assert message.count("\n") == 0
    for word in ("dm_control", "MuJoCo", "flex_vertedge", 'pip install "ddpg-paths[dmc]"'):
        assert word in message


def test_a_missing_graphics_library_is_not_taken_for_an_incompatible_mujoco(monkeypatch):
    """Nor is the text of Python's OpenGL all that is said, for an environment of gymnasium."""

    def load(*arguments, **options):  # as with MUJOCO_GL=osmesa and without the library
        exec(
            "raise AttributeError(\"'NoneType' object has no attribute 'glGetError'\")", {"__name__": "OpenGL.platform"}
        )

    for name, module in fake_dm_control.modules(load).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(gym.registry, "Drawn-v0", gym.envs.registration.EnvSpec("Drawn-v0", entry_point=load))
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    for env_id in ("dmc/cheetah-run", "Drawn-v0"):
        with refuses(UsageError, "MUJOCO_GL='osmesa' library glGetError libosmesa6") as caught:
            make_env(env_id)
        assert "does not work" not in str(caught.value)


@pytest.mark.parametrize(
    ("domain", "task", "words"),
    [("cheetah", "runn", "cheetah-run"), ("lqr", "lqr_2_1", "TASKS"), (3, "run", "domain=3")],
)
def test_an_unknown_task_is_refused(domain, task, words):
    with refuses(UsageError, words):
        ControlSuiteEnv(domain, task)


def test_ids_with_dm_controls_namespace_get_the_right_id_as_a_hint():
    with refuses(UsageError, "dmc/cheetah-run dmc"):
        make_env("dm_control/cheetah-run-v0")


# -- with dm_control -------------------------------------------------------------------------------------------------


@pytest.fixture
def suite():
    pytest.importorskip("dm_control", reason="the extra 'dmc' is not installed")
    from dm_control import suite

    return suite


def play_with_dm_control(suite, name, seed, actions):
    """Return dm_control's flattened observations, and for each action the sum of two rewards."""
    domain, _, task = name.partition("-")
    flat = {"flat_observation": True}
    env = suite.load(domain, task, task_kwargs={"random": seed}, environment_kwargs=flat)
    observations, rewards = [env.reset().observation["observations"]], []
    for action in actions:
        steps = [env.step(action) for _ in range(2)]
        rewards.append(steps[0].reward + steps[1].reward)
        observations.append(steps[1].observation["observations"])
    env.close()
    return np.array(observations), np.array(rewards)


def test_the_tasks_are_the_suites(suite):
    registered = {(domain, task) for domain, tasks in TASKS.items() for task in tasks}
    assert {*suite.ALL_TASKS} - registered == {("lqr", "lqr_2_1"), ("lqr", "lqr_6_2")}
    assert registered <= {*suite.ALL_TASKS}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "quadruped-escape"])
def test_episodes_are_those_of_dm_control(name, suite):
    """Bit for bit: observations in dm_control's order, rewards summed, also after other episodes."""
    env = gym.make(f"dmc/{name}-v0")
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(8)]
    for seed in (11, 12, 11):
        expected, rewards = play_with_dm_control(
            suite, name, seed, np.clip(actions, env.unwrapped._low, env.unwrapped._high)
        )
        first, _ = env.reset(seed=seed)
        steps = [env.step(action) for action in actions]
        assert env.observation_space.contains(first)
        np.testing.assert_array_equal([first, *(step[0] for step in steps)], expected.astype(np.float32))
        assert [step[1] for step in steps] == rewards.tolist()
    env.close()


def test_an_episode_has_500_actions_and_is_truncated(suite):
    """dm_control's episode has 1000 control steps; the rewards of each two are summed."""
    env = gym.make("dmc/cartpole-balance-v0")
    env.reset(seed=4)
    env.action_space.seed(4)
    actions, rewards, over = [], [], False
    while not over:
        actions.append(env.action_space.sample())
        _, reward, terminated, over, _ = env.step(actions[-1])
        rewards.append(reward)
        assert not terminated
    assert len(actions) == 500
    expected = play_with_dm_control(suite, "cartpole-balance", 4, actions)[1]
    assert rewards == expected.tolist()
    assert env.unwrapped._env.reset().reward is None  # its episode was over, too: step() would begin another


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasiums_check_passes(suite):
    check_env(gym.make("dmc/cheetah-run-v0").unwrapped, skip_render_check=True)


def test_rendered_frames_change_and_closing_is_silent(suite, tmp_path):
    """In its own process without TensorFlow, whose LLVM may conflict with a software renderer's."""
    code = """
import gymnasium, numpy, ddpg_envs
env = gymnasium.make("dmc/cheetah-run-v0", render_mode="rgb_array")
env.reset(seed=0)
first = env.render()
env.step(env.action_space.high)
second = env.render()
env.close()
assert first.shape == second.shape == (360, 480, 3) and first.dtype == numpy.uint8, first.shape
assert (first != second).any() and first.std() > 10
"""
    environment = {"MUJOCO_GL": "egl", **os.environ}
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], env=environment, check=False)
    assert done.returncode == 0


def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(suite, tmp_path, monkeypatch):
    """Weights, memory, episodes and evaluations are bit-identical: resuming needs no state of dm_control."""

    def killing(env, action):
        steps.append(action)
        if len(steps) == 2300:  # counts evaluation steps: in the third episode
            raise Killed
        return step(env, action)

    config = DDPGConfig(hidden=(4,), batch_size=4, learning_starts=20, updates_per_step=0.1, jit=False)
    options = {"seed": 5, "total_timesteps": 1500, "evaluation_interval": 500, "evaluation_episodes": 1}
    straight = train("dmc/cartpole-balance", config, root=tmp_path / "straight", progress_bar=False, **options)
    steps, step = [], ControlSuiteEnv.step
    let_kills_pass(monkeypatch)
    monkeypatch.setattr(ControlSuiteEnv, "step", killing)
    with pytest.raises(Killed):
        train("dmc/cartpole-balance", config, root=tmp_path / "killed", progress_bar=False, **options)
    run = tmp_path / "killed" / "dmc" / "cartpole-balance-v0" / "1"
    assert run_directory.checkpoints(run)[-1].name == "1000"
    resume(run, progress_bar=False)
    assert_same(run, straight)
