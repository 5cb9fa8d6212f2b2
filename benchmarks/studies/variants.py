"""MuJoCo tasks to tune on: like those of the table, and none of them.

Bodies are a quarter heavier, and an action lasts for another time.
"""

import gymnasium as gym

TASKS = {"HalfCheetah": 4, "Hopper": 5, "Walker2d": 5, "Ant": 4}  # frames an action lasts; the table's: 5, 4, 4, 5


def make(task: str, **options) -> gym.Env:
    """Return the variant of ``task``."""
    env = gym.make(f"{task}-v5", frame_skip=TASKS[task], **options).unwrapped
    env.model.body_mass[:] *= 1.25
    env.model.body_inertia[:] *= 1.25
    return env


for name in TASKS:
    gym.register(f"Heavy{name}-v0", entry_point=make, kwargs={"task": name}, max_episode_steps=1_000)
