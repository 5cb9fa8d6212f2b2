"""Record episodes of the published Platform domain for ``tests/envs/test_platform.py``, which compares ours with them.

    pip install '.[bench]'
    python benchmarks/platform_reference.py > tests/envs/data/platform_reference.json

The file has, from hybrid-platform 0.1.0, statistics of 2 000 episodes of the random policy, and trajectories of three
kinds, each an episode from a given start and seed: the random policy from the usual start, the random policy from
states all over the three platforms, and a plan that reaches the end. In one episode, each random number is
0.3 standard deviations instead, so that the episode depends on no generator.
"""

import json

import gym_platform  # noqa: F401 - registers the environment
import gymnasium as gym
import numpy as np

HIGH = (30.0, 720.0, 430.0)  # parameters of run, hop, leap; all start at 0
PLATFORMS = ((0, 250), (475, 275), (985, 50))
EPISODES = 2000
# Found by search; it reaches the end if every random number is 0.3 standard deviations.
PLAN = [(1, 354.7), (1, 369.7), (0, 2.6), (1, 561.8), (1, 603.5), (1, 350.5), (0, 1.8), (1, 600.0), (0, 22.4)]


class Constant:
    """A generator whose normal numbers are all the same number of standard deviations from the mean."""

    def __init__(self, deviations: float):
        self.deviations = deviations

    def normal(self, mean, deviation, size=None):
        value = mean + self.deviations * deviation
        return value if size is None else np.full(size, value)


def random_action(rng: np.random.Generator, run_high: float = HIGH[0]) -> tuple[int, float]:
    choice = int(rng.integers(3))
    return choice, float(rng.uniform(0, (run_high, *HIGH[1:])[choice]))


def step(env, choice: int, parameter: float):
    return env.step((choice, tuple(np.array([parameter]) for _ in HIGH)))


def random_policy(env) -> dict:
    """Return the mean and half the width of the 95 % interval, for return and length of the random policy."""
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    returns, lengths = [], []
    for _ in range(EPISODES):
        env.reset()
        rewards, terminated = [], False
        while not terminated:
            _, reward, terminated, _, _ = step(env, *random_action(rng))
            rewards.append(reward)
        returns.append(sum(rewards))
        lengths.append(len(rewards))
    statistics = {"episodes": EPISODES, "seed": 0}
    for name, values in (("return", returns), ("length", lengths)):
        statistics[f"mean_{name}"] = float(np.mean(values))
        statistics[f"ci95_{name}"] = float(1.96 * np.std(values, ddof=1) / EPISODES**0.5)
    return statistics


def set_state(env, state: list[float]) -> None:
    env.player.position[:], env.player.velocity[:] = state[:2], state[2:4]
    env.enemy1.position[0], env.enemy1.dx, env.enemy2.position[0], env.enemy2.dx = state[4:]


def random_start(rng: np.random.Generator) -> list[float]:
    """Return a state with the player standing somewhere on a platform; the order of ``PlatformEnv.state``."""
    left, width = PLATFORMS[rng.integers(3)]
    x = rng.uniform(max(left - 20, 0), min(left + width, 1034))
    enemies = [rng.uniform(0, 230), rng.uniform(-30, 30), rng.uniform(475, 730), rng.uniform(-30, 30)]
    return [round(float(number), 3) for number in (x, 40, rng.uniform(0, 70), 0, *enemies)]


def trajectory(env, seed: int, actions, start: list[float] | None = None, noise: float | None = None) -> dict:
    """Return an episode: its start and seed, and every step's action, observation, reward, end and substeps."""
    (observation, _), _ = env.reset(seed=seed)
    if noise is not None:
        env.np_random = Constant(noise)
        env._update_seeds()
    if start is not None:
        set_state(env, start)
        observation = env.get_state()
    steps = []
    for choice, parameter in actions:
        (following, substeps), reward, terminated, _, _ = step(env, choice, parameter)
        steps.append([choice, parameter, following.tolist(), float(reward), bool(terminated), substeps])
        if terminated:
            break
    return {"seed": seed, "start": start, "noise": noise, "first": observation.tolist(), "steps": steps}


def main() -> None:
    env = gym.make("Platform-v0").unwrapped
    rng = np.random.default_rng(1)

    def random_actions():
        while True:
            yield random_action(rng, run_high=rng.choice([3.0, 30.0]))

    episodes = [trajectory(env, seed, random_actions()) for seed in range(40)]
    episodes += [trajectory(env, seed, random_actions(), start=random_start(rng)) for seed in range(100, 160)]
    episodes += [trajectory(env, seed, PLAN) for seed in range(200, 220)]
    episodes.append(trajectory(env, 0, PLAN, noise=0.3))
    # One line per episode, so that diffs are readable.
    lines = ",\n".join(json.dumps(episode) for episode in episodes)
    print(f'{{"package": "hybrid-platform 0.1.0",\n"random_policy": {json.dumps(random_policy(env))},')
    print(f'"episodes": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
