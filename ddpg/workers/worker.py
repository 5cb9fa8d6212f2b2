"""A worker: one environment stepped by the NumPy policy with its own exploration. TensorFlow is not imported."""

import copy
import time
from collections.abc import Sequence

import numpy as np

from ddpg.interaction.env_calls import close_quietly
from ddpg.interaction.env_runner import make_env_runner
from ddpg.interaction.transitions import Episode, Transitions
from ddpg.replay.minibatch import stored_dtype
from ddpg.workers.messages import Rollout, RolloutRequest, WorkerSpec


class Worker:
    """Steps one environment for whoever asks, and goes on with its episode from one rollout to the next.

    Args:
        assignment: what it is made of.
        number: its number, from 0.
        epoch: how many workers of this number were before it: another one explores otherwise.

    Attributes:
        version: of the weights that it acts with; -1: none yet.

    Raises:
        UsageError: an environment that cannot be made.
        EnvironmentFault: one that fails.
    """

    def __init__(self, assignment: WorkerSpec, number: int, epoch: int):
        self.version = -1
        self._assignment = assignment
        # Its own: what comes out of Ray's object store cannot be written to.
        self._program, self._normaliser, self._behaviour = copy.deepcopy(
            (assignment.program, assignment.normaliser, assignment.behaviours[number])
        )
        seeds = np.random.SeedSequence([*assignment.seed, number, epoch]).spawn(2)
        self._behaviour.rng = np.random.default_rng(seeds[0])
        self._env = assignment.make_env()
        reset_seed = int(seeds[1].generate_state(1)[0] >> 1)
        self._interaction = make_env_runner(self._env, reset_seed, assignment.on_bad_transition)
        self._behaviour.start(1)
        self._under_way = 0

    def load(self, version: int, arrays: Sequence[np.ndarray]) -> None:
        """Act from now on with these weights: :func:`ddpg.workers.remote_loop.current_weights` made them."""
        count = len(self._program.parameters())
        self._program.load(arrays[:count])
        if self._normaliser is not None:
            names = ("count", "mean", "squares")
            self._normaliser.restore(dict(zip(names, arrays[count:], strict=True)))
        self.version = version

    def rollout(self, request: RolloutRequest) -> Rollout:
        """Step ``assignment.length`` times.

        Raises:
            EnvironmentFault: the environment failed.
        """
        start = time.monotonic()
        interaction, behaviour = self._interaction, self._behaviour
        dtype = stored_dtype(self._env.observation_space)
        rows: list[Transitions] = []
        clipped: list[bool] = []
        episodes: list[tuple[int, Episode]] = []
        abandoned: list[int] = []
        dropped = 0
        for step in range(request.first_step, request.first_step + self._assignment.length):
            actions, was_clipped = behaviour.act(self._policy, interaction.observations, step)
            result = interaction.step(self._assignment.actions.to_env(actions), actions)
            if result.dropped:
                dropped, self._under_way = dropped + 1, 0
                behaviour.end_episode(0)
                abandoned.append(len(rows))
                continue
            rows.append(result.transitions)
            clipped.extend(was_clipped)
            self._under_way += 1
            for episode in result.episodes:
                self._under_way = 0
                behaviour.end_episode(0)
                episodes.append((len(rows), episode))
        shape = self._env.observation_space.shape or ()

        def column(name: str, shape: tuple[int, ...], dtype) -> np.ndarray:
            return np.concatenate(
                [np.zeros((0, *shape), dtype), *(getattr(row, name) for row in rows)], dtype=dtype, casting="unsafe"
            )

        transitions = Transitions(
            observations=column("observations", shape, dtype),
            actions=column("actions", (self._assignment.actions.size,), np.float32),
            rewards=column("rewards", (), np.float32),
            next_observations=column("next_observations", shape, dtype),
            terminated=column("terminated", (), bool),
            truncated=column("truncated", (), bool),
            env_indices=[request.worker] * len(rows),
        )
        return Rollout(
            request,
            self.version,
            transitions,
            clipped=np.array(clipped, bool),
            episodes=episodes,
            dropped=dropped,
            abandoned=abandoned,
            under_way=self._under_way,
            seconds=time.monotonic() - start,
        )

    def close(self) -> None:
        """Close the environment."""
        close_quietly(self._env)

    def _policy(self, observations: np.ndarray) -> np.ndarray:
        return self._program(observations if self._normaliser is None else self._normaliser(observations))
