"""Variants of MuJoCo tasks for tuning, so that the reported tasks are not used for it.

Heavy: bodies are a quarter heavier, and in gymnasium's tasks actions last for another number of frames. Light: bodies
are a fifth lighter. Some are tasks of the control suite, which needs the extra ``dmc``: in two of them runs find reward
late, in three others actions saturate. One has the body of Ant-v5 and the observations of Ant-v4.
"""

import gymnasium as gym

import ddpg_envs  # noqa: F401 - registers the control suite

# Frames per action; by default 5, 4, 4, 5, 5.
TASKS = {"HalfCheetah": 4, "Hopper": 5, "Walker2d": 5, "Ant": 4, "Humanoid": 4}
OPTIONS = {"Humanoid": {"include_cfrc_ext_in_observation": False}}  # in Humanoid-v4 the contact forces are all 0

SUITE = {
    "PendulumSwingup": "dmc/pendulum-swingup-v0",
    "CartpoleSwingupSparse": "dmc/cartpole-swingup_sparse-v0",
    "FishSwim": "dmc/fish-swim-v0",
    "FingerTurn": "dmc/finger-turn_easy-v0",
    "QuadrupedWalk": "dmc/quadruped-walk-v0",
    "ReacherHard": "dmc/reacher-hard-v0",
    "WalkerRun": "dmc/walker-run-v0",
}


def heavy(task: str, **options) -> gym.Env:
    """Return the heavier variant of ``task``."""
    return _of_mass(1.25, gym.make(f"{task}-v5", frame_skip=TASKS[task], **options))


def light(task: str, **options) -> gym.Env:
    """Return the lighter variant of ``task``."""
    return _of_mass(0.8, gym.make(f"{task}-v5", **options))


def suite_task(env_id: str, times: float, **options) -> gym.Env:
    """Return a task of the control suite with bodies ``times`` as heavy."""
    env = gym.make(env_id, **options).unwrapped
    _scale(env._env.physics.model, times)
    return env


def _of_mass(times: float, env: gym.Env) -> gym.Env:
    _scale(env.unwrapped.model, times)
    return env.unwrapped


def _scale(model, times: float) -> None:
    model.body_mass[:] *= times
    model.body_inertia[:] *= times


for name in TASKS:
    for prefix, make in (("Heavy", heavy), ("Light", light)):
        gym.register(
            f"{prefix}{name}-v0",
            entry_point=make,
            kwargs={"task": name} | OPTIONS.get(name, {}),
            max_episode_steps=1_000,
        )

for name, env_id in SUITE.items():
    for prefix, times in (("Heavy", 1.25), ("Light", 0.8)):
        gym.register(f"{prefix}{name}-v0", entry_point=suite_task, kwargs={"env_id": env_id, "times": times})

gym.register(
    "AntWithoutContactForces-v0",
    entry_point="gymnasium.envs.mujoco.ant_v5:AntEnv",
    kwargs={"include_cfrc_ext_in_observation": False},
    max_episode_steps=1_000,
)
