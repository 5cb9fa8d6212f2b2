"""Ending a run at a signal: where it can go on exactly, if that is near."""

import time

import gymnasium as gym

from ddpg.agents.callbacks import Callback
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.experience.interaction import Episode
from ddpg.runs.signals import Request

PATIENCE = 5.0  # seconds that an episode may take to its end
LONGEST_STEP = 1.0  # seconds that a step counts at most: a longer one was compiling, and is none of the episode's


class StopAtRequest(Callback):
    """Ends learning at the end of the episode under way, or where it stands if that does not come in time.

    The episodes of a vector, or of workers, do not end together, so nothing is waited for there.
    """

    def __init__(self, request: Request, patience: float = PATIENCE):
        self._request, self._patience = request, patience
        self._ended_at = -1
        self._last_step: float | None = None
        self._waited = 0.0

    def on_episode_end(self, agent: OffPolicyAgent, episode: Episode) -> None:
        """Note where."""
        self._ended_at = agent.num_timesteps

    def on_step(self, agent: OffPolicyAgent) -> bool | None:
        """End learning here, if it was asked for."""
        if self._request.number is None:
            return None
        if self._ended_at == agent.num_timesteps or self._ends_anywhere(agent):
            return False
        now = time.monotonic()
        self._waited += min(now - (self._last_step or now), LONGEST_STEP)
        self._last_step = now
        return False if self._waited >= self._patience else None

    def _ends_anywhere(self, agent: OffPolicyAgent) -> bool:
        return isinstance(agent.env, gym.vector.VectorEnv) or not agent.loop.exact
