"""Make gradient updates from the replay buffer: sample minibatches, run K updates per call, average their metrics."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from ddpg.algorithms.base import Update
from ddpg.compiler.ir import Unsupported
from ddpg.compiler.jit import CompilerFailure, fastest_precision, obstacle_to_bfloat16
from ddpg.config.algorithm_options import AgentConfig
from ddpg.errors import UsageError
from ddpg.gradients import sign_check
from ddpg.learners.graph import (
    SteppedLearner,
    UncompiledLearner,
    XLALearner,
    as_float,
    convolves,
    network_variables,
    placeholders,
)
from ddpg.learners.native import NativeLearner
from ddpg.learners.synced_session import assign_variables
from ddpg.networks.base import Network
from ddpg.networks.own_layers import reason_of
from ddpg.progress import print_to_stderr
from ddpg.replay.minibatch import Batch
from ddpg.replay.normalizers import ObservationNormalizer
from ddpg.replay.sampling import Sampler

v1 = tf.compat.v1

# On a GPU even the smallest update took 0.22 ms; a processor core makes this many operations in that time
# (docs/performance/gpu.md).
LEAST_OPERATIONS_FOR_GPU = 2e7


class Updater:
    """Makes an agent's gradient updates in its session.

    Args:
        update, config: the agent's.
        sampler, rng: for minibatches.
        updates_per_call: the most updates of a call.
        fetch: variables whose values :meth:`run` returns.
        normaliser: normalises the observations in minibatches; ``None``: they are used as sampled.

    Attributes:
        num_updates: gradient updates made.
        metrics: names of an update's metrics.
        compile_seconds: duration of the first call, which builds and compiles the update; ``None`` before it.
    """

    def __init__(
        self,
        update: Update,
        config: AgentConfig,
        sampler: Sampler,
        rng: np.random.Generator,
        updates_per_call: int,
        fetch: Sequence,
        normaliser: ObservationNormalizer | None = None,
    ):
        self.num_updates, self.metrics = 0, update.metrics
        self._update, self._config, self._sampler, self._rng, self._fetch = update, config, sampler, rng, fetch
        self._updates_per_call, self._normaliser = updates_per_call, normaliser
        self._variables = self._names_of_variables()
        self.compile_seconds: float | None = None

    @functools.cached_property
    def learner(self) -> XLALearner | NativeLearner | UncompiledLearner:
        """The learner for the configuration; its ops are built at first use."""
        config, per_call = self._config, self._updates_per_call
        kind: type[XLALearner | UncompiledLearner] = XLALearner if config.jit else UncompiledLearner
        if self._update.value.td_path.feeds_target:
            kind, per_call = SteppedLearner, 1
        elif config.jit and config.compiler != "xla":
            if native := self._native():
                return native
            if config.compiler == "auto" and convolves(self._update) and not self._gpu_pays():
                # The networks have other ops that our compiler does not support. XLA's loops for the gradients of
                # convolutions took 56 times as long as TensorFlow's kernels on a CPU. One minibatch per call: K
                # minibatches of images would be gigabytes.
                kind, per_call = UncompiledLearner, 1
        return kind(self._update, batch_size=config.batch_size, updates_per_call=per_call, fetch=self._fetch)

    def _native(self) -> NativeLearner | None:
        """Return the native learner; ``None`` if it is unsupported or a GPU is faster, and no option requires it."""
        required, precision = self._config.compiler == "native", self._config.precision
        chosen = precision.startswith("bfloat16")
        if not required and not chosen and self._gpu_pays():
            if precision == "auto":
                print_to_stderr("precision='auto': XLA compiles the updates for the GPU, in float32")
            return None
        try:
            if precision != "auto":
                return self._native_of(precision)
            obstacle = obstacle_to_bfloat16()
            native = self._native_of("float32" if obstacle else fastest_precision())
            if obstacle:
                print_to_stderr(f"precision='auto': {obstacle}, so products are of float32 numbers")
            return native
        except Unsupported as reason:
            if chosen:
                raise UsageError(f"precision={precision!r}: {reason}; use 'float32', or 'auto'") from None
            if required:
                raise UsageError(
                    f"compiler='native' cannot translate this update: {reason}; use 'auto' or 'xla'"
                ) from None
            if isinstance(reason, CompilerFailure):
                print_to_stderr(f"{reason}; XLA compiles the updates instead; installing llvmlite again may help")
            elif precision == "auto":
                print_to_stderr(f"precision='auto': {reason}, so XLA compiles the updates, in float32")
            return None

    def _native_of(self, precision: str) -> NativeLearner:
        return NativeLearner(
            self._update,
            batch_size=self._config.batch_size,
            updates_per_call=self._updates_per_call,
            threads=self._config.threads,
            fetch=self._fetch,
            precision=precision,
        )

    def _gpu_pays(self) -> bool:
        """Return whether there is a GPU, and an update is large enough for it to be faster than the processor."""
        if not tf.config.list_physical_devices("GPU"):
            return False
        weights = sum(v.shape.num_elements() for variables in network_variables(self._update) for v in variables)
        # Ten operations per weight and transition: forward and backward passes, the target's, the actor's through Q.
        return convolves(self._update) or 10 * self._config.batch_size * weights > LEAST_OPERATIONS_FOR_GPU

    def set_rate(self, session: tf.compat.v1.Session, network: Network, rate: float) -> None:
        """Set a network's learning rate from the next update on."""
        native = self.__dict__.get("learner")
        if not (isinstance(native, NativeLearner) and native.set_rate(network.learning_rate, rate)):
            with session.as_default():
                network.set_learning_rate(rate)

    def run(
        self, session: tf.compat.v1.Session, n: int, reward_scale: float = 1.0, correction: float = 1.0
    ) -> tuple[dict[str, float], Sequence[np.ndarray]]:
        """Make ``n`` ≥ 1 updates on minibatches with rewards divided by ``reward_scale``.

        Observations are normalised with the current statistics. Priorities are set after each call of up to K updates,
        so all minibatches of a call are sampled with the priorities from before the call, corrected by β,
        ``correction``.

        Returns:
            Means of the metrics over the updates, and the fetched variables' values afterwards.

        Raises:
            UsageError: if the replay buffer is empty, or TensorFlow cannot run the first update, because an operation
                has no gradient or no implementation on the device.
            FloatingPointError: if the loss or the weights are not finite.
        """
        start = time.perf_counter()
        with self._first_update():
            learner = self.learner
        totals = dict.fromkeys(self.metrics, 0.0)
        done = 0
        while done < n:
            count = min(n - done, learner.updates_per_call)
            batch, rows = self._sampler.sample(self._rng, count, self._config.batch_size, correction)
            if reward_scale != 1.0:
                batch = batch.replace(rewards=batch.rewards / np.float32(reward_scale))
            batch = batch.with_observations(self._normaliser)
            if self.compile_seconds is None:
                self._check_own_paths(session, batch)
            with self._first_update():
                metrics, fetched, errors, finite = learner.update(session, batch, count)
            if self.compile_seconds is None:
                self.compile_seconds = time.perf_counter() - start
            done += count
            self.num_updates += count
            if not finite:
                self._diverged("weights are not finite")
            if not np.isfinite(loss := metrics[self.metrics[0]]):  # before the priorities, which refuse such TD errors
                self._diverged(f"the loss is {loss}")
            if errors is not None:
                self._sampler.update(rows, errors)
            totals = {name: total + metrics[name] * count / n for name, total in totals.items()}
        return totals, fetched

    @contextlib.contextmanager
    def _first_update(self) -> Iterator[None]:
        """Turn an exception of an operation that TensorFlow cannot run, or of a user's own update, into a UsageError.

        From the second call of updates on they pass as they are.
        """
        if self.compile_seconds is not None:
            yield
            return
        with self._update.own_code():
            try:
                yield
            except tf.errors.OpError as error:
                if late := sorted(self._names_of_variables() - self._variables):
                    raise UsageError(
                        f"{', '.join(late)} was made together with the ops of the update, too late to have a value or "
                        f"to be saved; make variables in {type(self._update).__name__}.build (a path or a loss can "
                        "have none)"
                    ) from error
                compiled = isinstance(self.learner, XLALearner)
                who = "XLA cannot compile this update" if compiled else "TensorFlow cannot run this update"
                advice = "set jit=False (--no-jit), which needs no compiler" if compiled else "use other operations"
                raise UsageError(f"{who}: {reason_of(error)}; {advice}") from error
            except LookupError as error:
                what = str(error).partition(". ")[0]
                if "gradient" not in what.lower():
                    raise
                who = "TensorFlow cannot differentiate this update"
                raise UsageError(f"{who}: {what}; use other operations") from error

    def _names_of_variables(self) -> set[str]:
        variables = self._update.value.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
        return {variable.name for variable in variables}

    def _check_own_paths(self, session: tf.compat.v1.Session, batch: Batch) -> None:
        """Warn, before the first update, if a user's own path makes Q smaller or the TD error larger.

        The paths are built again for this, after the learner's ops, so that the updates are the same with and without
        the check. A path that cannot be built with a stand-in for the critic or for y is not checked.
        """
        update = self._update
        value: Any = update.value
        cosines: list[tuple[Callable, tf.Tensor]] = []
        with value.graph.as_default(), v1.name_scope("sign_check/"):
            inputs = placeholders(update, (self._config.batch_size,))
            states = as_float(inputs)
            if (path := update.policy_path) is not None and sign_check.is_checked(path):
                actor: Any = update.policy
                with contextlib.suppress(Exception):
                    cosines.append((path, sign_check.climb_cosine(path, actor, value, states)))
            if sign_check.is_checked(path := value.td_path.path):
                with contextlib.suppress(Exception):
                    q = value.prediction(states.observations, states.actions).q
                    cosines.append((path, sign_check.descent_cosine(path, q, value.trainable_variables)))
        if not cosines:
            return
        # Passes in training mode move the statistics of batch norms, so they are restored.
        statistics = [v for variables in network_variables(update) for v in variables if not v.trainable]
        values = session.run(statistics)
        feeds = {placeholder: field[0] for placeholder, field in zip(inputs, batch, strict=True)}
        found = session.run([cosine for _, cosine in cosines], feeds)
        assign_variables(session.run, statistics, values)
        for (path, _), cosine in zip(cosines, found, strict=True):
            sign_check.warn_of_wrong_sign(getattr(path, "__name__", repr(path)), float(cosine))

    def _diverged(self, what: str) -> NoReturn:
        raise FloatingPointError(
            f"{what} after {self.num_updates} updates: training diverged; "
            "lower the learning rate, or scale the rewards down"
        )
