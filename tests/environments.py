"""Small environments for tests, and a policy."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


def transition_rows(transitions):
    """Return a list per transition: [environment, s, r, s′, terminated, truncated]."""
    columns = ("env_indices", "observations", "rewards", "next_observations", "terminated", "truncated")
    return [
        [np.asarray(value).tolist() for value in row]
        for row in zip(*(getattr(transitions, column) for column in columns), strict=True)
    ]


class Still:
    """A policy that takes the action 0, for one observation or a batch, and does not explore."""

    def predict(self, observation, deterministic=True):
        assert deterministic
        return np.zeros((*np.shape(observation)[:-1], 1), np.float32), None


class Counting(gym.Env):
    """An environment with the observation [episode, step], which identifies every row, and the step as reward.

    ``actions`` and ``seeds`` are those of all steps and resets.

    Args:
        length: steps in an episode.
        truncate: end episodes by truncation instead of termination.
        nan_at: step whose observation is NaN.
        nan_reward_at: step whose reward is NaN.
    """

    def __init__(
        self, length=3, truncate=False, nan_at=None, nan_reward_at=None, observation_space=None, action_space=None
    ):
        self.observation_space = observation_space or spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = action_space or spaces.Box(-2.0, 4.0, (1,), np.float32)
        self.length, self.truncate, self.nan_at, self.nan_reward_at = length, truncate, nan_at, nan_reward_at
        self.episode = -1
        self.step_number = 0
        self.actions, self.seeds = [], []

    def _observation(self):
        value = np.array([self.episode, self.step_number], np.float64)
        return np.full(2, np.nan) if self.step_number == self.nan_at else value

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.step_number = 0
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.actions.append(action)
        self.step_number += 1
        done = self.step_number >= self.length
        reward = np.nan if self.step_number == self.nan_reward_at else float(self.step_number)
        return self._observation(), reward, done and not self.truncate, done and self.truncate, {}


class Shown(gym.Env):
    """Episodes of two steps, whose observations show ``goal``; the last has reward 1 − (action − best)²."""

    def __init__(self, goal, best, action_space):
        self.goal, self.best, self.action_space = goal, best, action_space
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.last = False
        return np.array([self.goal, 0.0], np.float32), {}

    def step(self, action):
        ended, self.last = self.last, True
        reward = 1 - float(np.square(action - self.best).sum()) if ended else 0.0
        return np.array([self.goal, 1.0], np.float32), reward, ended, False, {}


class Shaped(gym.Env):
    """Any Box of observations and any Box or Discrete of actions: zeros plus a drift, 5 steps; reward −‖action‖²."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space
        self.step_number = 0

    def _observation(self):
        return np.full(self.observation_space.shape, self.step_number, self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.step_number += 1
        return self._observation(), -float(np.square(action).sum()), False, self.step_number >= 5, {}


class Pixels(gym.Env):
    """Catch: a pixel falls through a 10 × 10 image of bytes; the action moves a paddle of width 3 at the bottom.

    The reward is 1 for a catch, at the end of the episode of 9 steps.
    """

    size = 10

    def __init__(self):
        self.observation_space = spaces.Box(0, 255, (self.size, self.size, 1), np.uint8)
        self.action_space = spaces.Discrete(3)

    def _observation(self):
        image = np.zeros((self.size, self.size, 1), np.uint8)
        image[self.row, self.column] = 255
        image[-1, self.paddle - 1 : self.paddle + 2] = 128
        return image

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row, self.column = 0, int(self.np_random.integers(self.size))
        self.paddle = int(self.np_random.integers(1, self.size - 1))
        return self._observation(), {}

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + int(action) - 1, 1, self.size - 2))
        self.row += 1
        done = self.row == self.size - 1
        caught = done and abs(self.column - self.paddle) <= 1
        return self._observation(), float(caught), done, False, {}


class Screen(gym.Env):
    """Random images, in episodes of ``length`` steps."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, shape=(84, 84), discrete=True, length=5):
        self.length = length
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(3) if discrete else spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._image(), {}

    def step(self, action):
        self._steps += 1
        return self._image(), 1.0, self._steps == self.length, False, {}

    def _image(self):
        return self.np_random.integers(0, 256, self.observation_space.shape, dtype=np.uint8)


class Aiming(gym.Env):
    """Parameterised actions, one step an episode: aim(x in [0, 10]), wave(y in [-1, 1]^2), or pass().

    Reward: aim 1 - ((x - 7) / 5)^2, wave -||y||^2 / 2, pass 0. The best action is aim(7) with reward 1.
    """

    boxes = (spaces.Box(0.0, 10.0, (1,)), spaces.Box(-1.0, 1.0, (2,)), spaces.Box(0.0, 1.0, (0,)))
    tuple_space = spaces.Tuple((spaces.Discrete(3), spaces.Tuple(boxes)))
    one_of_space = spaces.OneOf(boxes)

    def __init__(self, action_space=tuple_space):
        self.observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        choice, parameters = action
        if isinstance(self.action_space, spaces.Tuple):
            parameters = parameters[choice]
        reward = (1 - np.square((parameters - 7) / 5).sum(), -np.square(parameters).sum() / 2, 0.0)[choice]
        return np.zeros(1, np.float32), float(reward), True, False, {"is_success": bool(reward > 0.9)}


class Reusing(gym.Env):
    """Returns all observations, [episode, step], in the same array, which it overwrites; 3 steps an episode."""

    def __init__(self, dtype=np.float32):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), dtype)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.observation = np.array([-1, 0], dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation += [1, -self.observation[1]]
        return self.observation, {}

    def step(self, action):
        self.observation[1] += 1
        return self.observation, float(self.observation[1]), self.observation[1] == 3, False, {}


class ReusingVector(gym.vector.VectorEnv):
    """A vector like :class:`Reusing`, which returns the same arrays at each step; environment i ends after 3 + i steps.

    ``info["is_success"]`` is whether the episode's number is even.
    """

    def __init__(self, mode, count=2, dtype=np.float32):
        self.metadata = {"autoreset_mode": mode}
        self.num_envs, self.mode = count, mode
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (2,), dtype)
        self.single_action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.observations, self.last = np.zeros((count, 2), dtype), np.zeros((count, 2), dtype)
        self.rewards = np.zeros(count, dtype)
        self.terminated, self.truncated = np.zeros(count, bool), np.zeros(count, bool)

    def reset(self, *, seed=None, options=None):
        self.observations[:] = 0
        self.terminated[:] = False
        return self.observations, {}

    def _next_episodes(self, ended):
        self.observations[ended, 0] += 1
        self.observations[ended, 1] = 0

    def step(self, actions):
        same_step = self.mode == gym.vector.AutoresetMode.SAME_STEP
        starting = self.terminated.copy() if not same_step else np.zeros(self.num_envs, bool)
        self.observations[:, 1] += 1
        self._next_episodes(starting)
        self.rewards[:] = self.observations[:, 1]
        self.terminated[:] = (self.observations[:, 1] == 3 + np.arange(self.num_envs)) & ~starting
        ended = self.terminated.copy()
        infos = {"is_success": self.observations[:, 0] % 2 == 0, "_is_success": ended}
        if same_step and ended.any():
            self.last[:] = self.observations
            infos = {"final_obs": self.last, "_final_obs": ended, "final_info": infos, "_final_info": ended}
            self._next_episodes(ended)
        return self.observations, self.rewards, self.terminated, self.truncated, infos


class Walk(gym.Env):
    """A seeded random walk with random length and rewards, so that an episode depends on the seed.

    ``info["is_success"]`` at the end is whether the return is positive.
    """

    def __init__(self, says_success=True):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.says_success = says_success

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.total = self.np_random.normal(size=2), 0.0
        self.left = int(self.np_random.integers(2, 9))
        return self.place, {}

    def step(self, action):
        self.place = self.place + self.np_random.normal(size=2)
        reward = float(self.place[0] + action[0])
        self.total += reward
        self.left -= 1
        info = {"is_success": self.total > 0} if self.says_success and not self.left else {}
        return self.place, reward, not self.left, False, info


class Reaching(gym.Env):
    """A goal on a line of integers; an action beyond ±1/2 moves by its sign. The reward is 0 at the goal, else −1.

    Observations: observation [step, x], achieved goal [x], desired goal [g].
    """

    def __init__(self, length=6, reach=3):
        box = lambda size: spaces.Box(-np.inf, np.inf, (size,), np.float64)  # noqa: E731
        self.observation_space = spaces.Dict(observation=box(2), achieved_goal=box(1), desired_goal=box(1))
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.length, self.reach = length, reach

    def _observation(self):
        parts = {"observation": [self.step_number, self.place], "achieved_goal": [self.place]}
        return {name: np.array(part, float) for name, part in {**parts, "desired_goal": [self.goal]}.items()}

    def compute_reward(self, achieved, desired, info):
        return -(np.linalg.norm(achieved - desired, axis=-1) > 0.5).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = self.place = 0
        self.goal = int(self.np_random.integers(-self.reach, self.reach + 1))
        return self._observation(), {}

    def step(self, action):
        self.step_number += 1
        self.place += round(float(action[0]))
        observation = self._observation()
        reward = self.compute_reward(observation["achieved_goal"], observation["desired_goal"], {})
        success = {"is_success": reward == 0}
        return observation, float(reward), False, self.step_number >= self.length, success
