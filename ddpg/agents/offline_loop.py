"""The learn loop that first makes updates from the replay memory alone, then steps the environment."""

import math
from typing import Any

from ddpg.agents.callbacks import Callback
from ddpg.agents.learn_loop import LearnLoop
from ddpg.agents.off_policy import OffPolicyAgent


class OfflineLoop(LearnLoop):
    """Learns offline until the agent has counted ``offline_timesteps``, and from then on as :class:`LearnLoop` does.

    Offline, a timestep is one update, whatever ``updates_per_step`` says, and no environment is stepped. So schedules,
    evaluations, checkpoints and the goal count on across the change. A call of updates ends at a multiple of
    ``updates_per_call``, so a resumed run makes the same calls as an uninterrupted one.

    Args:
        agent: the learner; this loop takes over the updates it still owes.
        offline_timesteps: timesteps of the agent's life that are offline; ``None``: all of them.
    """

    def __init__(self, agent: OffPolicyAgent, offline_timesteps: int | None = None):
        super().__init__()
        self.owed_updates = agent.loop.owed_updates
        self._online_from = math.inf if offline_timesteps is None else offline_timesteps

    def _step(self, agent: Any, goal: int, callbacks: Callback) -> None:
        now, per_call = agent.num_timesteps, agent.config.updates_per_call
        self.outside_episodes = now < self._online_from
        if not self.outside_episodes:
            super()._step(agent, goal, callbacks)
            return
        count = int(min(per_call - now % per_call, goal - now, self._online_from - now))
        agent.num_timesteps += count
        self.owed_updates += count
        self._make_updates(agent, goal, callbacks)
        if callbacks.on_step(agent) is False:
            self.stop()
