"""Make gradient updates from the replay buffer: draw minibatches, run a driver in calls of up to K, average metrics."""

import functools
import time
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import tensorflow as tf

from ddpg.algorithms.base import Update
from ddpg.compiler.ir import Unsupported
from ddpg.compiler.jit import CompilerFailure
from ddpg.config.algorithm_options import AgentConfig
from ddpg.errors import UsageError
from ddpg.learners.graph import SteppedLearner, UncompiledLearner, XLALearner
from ddpg.learners.native import NativeLearner
from ddpg.networks.base import Network
from ddpg.progress import print_to_stderr
from ddpg.replay.normalizers import ObservationNormalizer
from ddpg.replay.sampling import Sampler

v1 = tf.compat.v1


class Updater:
    """Makes an agent's updates in its session.

    Args:
        update: the symbolic update.
        config: the agent's.
        sampler: draws minibatches.
        rng: draws them.
        normaliser: of the observations in minibatches, if any.
        fetch: variables whose values :meth:`run` returns.

    Attributes:
        num_updates: gradient updates made.
        metrics: names of what an update measures.
        compile_seconds: from when the first call of updates was asked for to its end, which builds and compiles
            them; ``None`` before it.
    """

    def __init__(
        self,
        update: Update,
        config: AgentConfig,
        sampler: Sampler,
        rng: np.random.Generator,
        fetch: Sequence,
        normaliser: ObservationNormalizer | None = None,
    ):
        self.num_updates, self.metrics = 0, update.metrics
        self._update, self._config, self._sampler, self._rng, self._fetch = update, config, sampler, rng, fetch
        self._normaliser = normaliser
        self.compile_seconds: float | None = None

    @functools.cached_property
    def learner(self) -> XLALearner | NativeLearner | UncompiledLearner:
        """The driver that the configuration asks for; its ops are built when they are first needed."""
        config = self._config
        if self._update.value.td_path.feeds_target:
            return SteppedLearner(self._update, batch_size=config.batch_size, fetch=self._fetch)
        if config.jit and config.compiler != "xla":
            native = self._native()
            if native:
                return native
        return (XLALearner if config.jit else UncompiledLearner)(
            self._update, batch_size=config.batch_size, updates_per_call=config.updates_per_call, fetch=self._fetch
        )

    def _native(self) -> NativeLearner | None:
        """Return the native driver; None where it was not asked for by name and does not fit."""
        asked = self._config.compiler == "native"
        if not asked and tf.config.list_physical_devices("GPU"):
            return None
        try:
            return NativeLearner(
                self._update,
                batch_size=self._config.batch_size,
                updates_per_call=self._config.updates_per_call,
                threads=self._config.threads,
                fetch=self._fetch,
            )
        except Unsupported as reason:
            if asked:
                raise UsageError(
                    f"compiler='native' cannot translate this update: {reason}; use 'auto' or 'xla'"
                ) from None
            if isinstance(reason, CompilerFailure):
                print_to_stderr(f"{reason}; XLA compiles the updates instead, and llvmlite installed anew may help")
            return None

    def set_rate(self, session: tf.compat.v1.Session, network: Network, rate: float) -> None:
        """Set a network's step size from the next update on."""
        native = self.__dict__.get("learner")
        if not (isinstance(native, NativeLearner) and native.set_rate(network.learning_rate, rate)):
            with session.as_default():
                network.set_learning_rate(rate)

    def run(
        self, session: tf.compat.v1.Session, n: int, reward_scale: float = 1.0, correction: float = 1.0
    ) -> tuple[dict[str, float], Sequence[np.ndarray]]:
        """Make ``n`` ≥ 1 updates on minibatches with rewards divided by ``reward_scale``.

        Observations are normalised by the statistics as they are now. Priorities follow after each call of up to K
        updates, so those that a call draws by know nothing of its own updates.

        Args:
            session: where.
            n: how many.
            reward_scale: as above.
            correction: β of the importance-sampling weights, where there are any.

        Returns:
            Means of the metrics over the updates, and the fetched variables' values afterwards.

        Raises:
            UsageError: an empty replay memory.
            FloatingPointError: a loss that is not finite, or weights.
        """
        start = time.perf_counter()
        learner = self.learner
        totals = dict.fromkeys(self.metrics, 0.0)
        done = 0
        while done < n:
            count = min(n - done, learner.updates_per_call)
            batch, rows = self._sampler.sample(self._rng, count, self._config.batch_size, correction)
            if reward_scale != 1.0:
                batch = batch.replace(rewards=batch.rewards / np.float32(reward_scale))
            if (normaliser := self._normaliser) is not None:
                batch = batch.replace(
                    observations=normaliser(batch.observations), next_observations=normaliser(batch.next_observations)
                )
            if count < learner.updates_per_call:
                batch = batch.padded(learner.updates_per_call)
            metrics, fetched, errors, finite = learner.update(session, batch, count)
            if self.compile_seconds is None:
                self.compile_seconds = time.perf_counter() - start
            done += count
            self.num_updates += count
            if not finite:
                self._diverged("weights are not finite")
            if errors is not None:
                self._sampler.update(rows, errors)
            totals = {name: total + metrics[name] * count / n for name, total in totals.items()}
        loss = totals[self.metrics[0]]
        if not np.isfinite(loss):
            self._diverged(f"the loss is {loss}")
        return totals, fetched

    def _diverged(self, what: str) -> NoReturn:
        raise FloatingPointError(
            f"{what} after {self.num_updates} updates: training diverged; "
            "lower the learning rate, or scale the rewards down"
        )
