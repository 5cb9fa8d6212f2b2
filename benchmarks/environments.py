"""Measure the speed of the environments: steps per second of CPU time under a random policy, in one process.

    python benchmarks/environments.py [--steps 5000] [--repeats 5]

The table has the best CPU time of the repeats, which other work on the machine changes little. A step with a
parameterised action takes many substeps of the simulator; if ``info`` counts them, the table shows their number.
"""

import argparse
import time

import gymnasium as gym

import ddpg_envs  # noqa: F401 - registers them


def measure(env_id: str, steps: int) -> tuple[float, float]:
    """Return steps per second, resets included, and the mean number of substeps per step."""
    env = gym.make(env_id).unwrapped
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(steps)]
    limit = gym.spec(env_id).max_episode_steps or steps
    env.reset(seed=0)
    substeps = length = 0
    start = time.process_time()
    for action in actions:
        _, _, terminated, truncated, info = env.step(action)
        substeps += info.get("substeps", 1)
        length += 1
        if terminated or truncated or length == limit:
            env.reset()
            length = 0
    return steps / (time.process_time() - start), substeps / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print("| environment | steps/s | substeps per step | substeps/s |\n|---|---:|---:|---:|")
    for env_id in sorted(env_id for env_id in gym.registry if env_id.startswith("ddpg_envs/")):
        speed, substeps = max(measure(env_id, arguments.steps) for _ in range(arguments.repeats))
        print(f"| {env_id} | {speed:,.0f} | {substeps:.1f} | {speed * substeps:,.0f} |")


if __name__ == "__main__":
    main()
