"""MuJoCo tasks to tune on: like those of the table, and none of them.

Heavy: bodies are a quarter heavier, and an action lasts for another time. Light: bodies are a fifth lighter.
"""

import gymnasium as gym

TASKS = {"HalfCheetah": 4, "Hopper": 5, "Walker2d": 5, "Ant": 4}  # frames an action lasts; the table's: 5, 4, 4, 5


def heavy(task: str, **options) -> gym.Env:
    """Return the heavier variant of ``task``."""
    return _of_mass(1.25, gym.make(f"{task}-v5", frame_skip=TASKS[task], **options))


def light(task: str, **options) -> gym.Env:
    """Return the lighter variant of ``task``."""
    return _of_mass(0.8, gym.make(f"{task}-v5", **options))


def _of_mass(times: float, env: gym.Env) -> gym.Env:
    model = env.unwrapped.model
    model.body_mass[:] *= times
    model.body_inertia[:] *= times
    return env.unwrapped


for name in TASKS:
    for prefix, make in (("Heavy", heavy), ("Light", light)):
        gym.register(f"{prefix}{name}-v0", entry_point=make, kwargs={"task": name}, max_episode_steps=1_000)
