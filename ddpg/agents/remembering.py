"""An agent that remembers what was done: its own steps, those of a loop of one's own, demonstrations."""

from typing import Any

import numpy as np

from ddpg.agents.base import Agent
from ddpg.agents.memory import DEMONSTRATIONS
from ddpg.agents.session_owner import exclusive
from ddpg.experience.transitions import Transitions, checked_transition, checked_transitions
from ddpg.validation import validate_int


class RememberingAgent(Agent):
    """An agent that acts and remembers.

    Attributes:
        memory: the replay memory, and what is made of it.
        replay: the replay memory itself.
        largest_reward: the largest one seen, at least 1.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.largest_reward = 1.0

    @exclusive
    def observe(self, observation, action, reward, next_observation, terminated, truncated, lane: int = 0) -> None:
        """Store one transition, in env units; for a loop of one's own, together with :meth:`update`.

        In a lane, a transition whose s is the s′ of the one before belongs to the same episode, until that ends: n-step
        returns, hindsight and the scale of returns go by that.

        Args:
            observation: s, the observation space's shape.
            action: a, as it was sent to the environment, one that the action space contains.
            reward: r.
            next_observation: s′: the true one, also where the episode ended.
            terminated: s′ is terminal: its value is 0.
            truncated: the episode was cut short; s′ still has a value.
            lane: the number, from 0, of the environment, where a loop steps several by turns.

        Raises:
            UsageError: a wrong shape, NaN, or an action outside its space; nothing is stored then.
        """
        lane = validate_int(lane, "lane", at_least=0)
        fields = observation, action, reward, next_observation, terminated, truncated
        transition, actions = checked_transition(self.observation_space, self.actions.to_flat, *fields)
        if not self.replay.observations.goes_on(lane, transition.observations[0]):
            self.memory.end_episodes(lane)
        self.store(transition._replace(environments=lane), actions)

    @exclusive
    def store(self, transitions: Transitions, actions: np.ndarray, clipped: int = 0) -> None:
        """Store checked transitions; ``actions`` as stored, of which ``clipped`` had left their box."""
        _, observations, rewards, next_observations, terminated, truncated, _ = transitions
        self.memory.add(observations, actions, rewards, next_observations, terminated, truncated, transitions.lanes)
        self.num_timesteps += len(rewards)
        # Every environment of a vector may have been restarting: then nobody stepped.
        self.largest_reward = float(np.max(rewards, initial=self.largest_reward))
        self._note_clipped(clipped)

    @exclusive
    def remember(self, observations, actions, rewards, next_observations, terminated, truncated) -> None:
        """Store N transitions of somebody else, such as demonstrations or an earlier run's, in env units.

        They count as what was seen (priorities, running statistics, the largest reward), and not as steps of the agent:
        ``num_timesteps`` stays. Transitions in a row, where s is the s′ of the one before and nothing ended, are one
        episode, as n-step returns and the scale of returns want to know. Of more than ``buffer_size`` the last stay.

        Args:
            observations: s, ``[N, *observation shape]``, or flat, ``[N, n]``.
            actions: a, as they were sent to the environment: a sequence of N that the action space contains.
            rewards: r, ``[N]``.
            next_observations: s′, as s: the true ones, also where an episode ended.
            terminated: s′ is terminal, ``[N]``.
            truncated: the episode was cut short at s′, ``[N]``.

        Raises:
            UsageError: a wrong shape, NaN, or an action outside its space; nothing is stored then.
        """
        fields = observations, actions, rewards, next_observations, terminated, truncated
        observations, flat, rewards, next_observations, terminated, truncated = checked_transitions(
            self.observation_space, self.actions.to_flat, *fields
        )
        lanes = [DEMONSTRATIONS] * len(rewards)
        last = terminated | truncated
        last[:-1] |= np.any(observations[1:] != next_observations[:-1], axis=tuple(range(1, observations.ndim)))
        self.memory.add(observations, flat, rewards, next_observations, terminated, truncated, lanes, last)
        self.memory.end_episodes(DEMONSTRATIONS)
        self.largest_reward = float(np.max(rewards, initial=self.largest_reward))

    @exclusive
    def begin_episodes(self) -> None:
        """Take note that every environment was reset: what is stored next does not follow what was stored before."""
        self.memory.end_episodes()

    def _note_clipped(self, count: int) -> None:
        """Take note of actions that left their box while learning."""
