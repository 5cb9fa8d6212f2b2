"""Store a tuning's trials in an Optuna journal, propose the next one, and decide about pruning.

No other module uses Optuna. The journal consists of lines of JSON, and reading it runs no code: in Optuna only the
Redis storage and the CMA-ES sampler read pickles. One process writes the journal, and holds the run lock of its folder.
Optuna's own lock is not used, because it is a link, which a killed process would leave behind.
"""

import dataclasses
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ddpg.checkpoints import safe_json
from ddpg.errors import FileFault, import_optional
from ddpg.studies.search_space import Range, Space

_NAME = "ddpg"
_REASON, _BASE = "reason", "ground"


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial as recorded so far.

    Attributes:
        number: the trial's number, from 0 on, without gaps.
        changes: values of the varied options.
        state: ``running``, ``complete``, ``pruned`` or ``failed``.
        value: mean evaluation return (env units) over its seeds, at the end or when it was pruned.
        returns: the same mean after each evaluation considered for pruning, by the evaluation's number, from 1.
        reason: why it failed, or why it was pruned if not by comparison with other trials.
    """

    number: int
    changes: dict[str, Any]
    state: str
    value: float | None
    returns: dict[int, float]
    reason: str | None


class Trials:
    """The trials of one tuning: proposes the next one, records results.

    Args:
        path: the path of the journal, which is created if it is missing.
        space: the search space.
        seed: seed of the sampler; the same seed and results give the same proposals, even after a killed process.
        pruning: whether to prune trials that are worse than the median of the others at the same evaluation.

    Raises:
        UsageError: if Optuna is not installed; a :class:`FileFault` if the journal is damaged.
    """

    def __init__(self, path: Path, space: Space, seed: int, pruning: bool = True):
        optuna = check_installed()
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna, self._space, self._seed = optuna, space, seed
        _drop_partial_line(path)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=5)
        lock: Any = _NoLock()  # not derived from Optuna's class, since Optuna is optional
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about experimental features
                self._storage = optuna.storages.JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
            self._study = optuna.create_study(
                study_name=_NAME,
                storage=self._storage,
                direction="maximize",
                load_if_exists=True,
                pruner=pruner if pruning else optuna.pruners.NopPruner(),
            )
            self._id = self._storage.get_study_id_from_name(_NAME)
            self._fail_incomplete()
            self.all()
        except OSError:
            raise
        except Exception as error:  # Optuna raises many types for a damaged line
            what = safe_json.one_line(f"{type(error).__name__}: {error}")
            raise FileFault(
                f"{path} is no journal of this tuning ({what}); bring it back, or give another --root"
            ) from None

    def ask(self) -> Trial:
        """Propose the next trial, and mark it as running."""
        number = len(self.all())
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.sampler = self._optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            self._study.ask(fixed_distributions=self._distributions())
        return self.all()[number]

    def enqueue_base(self, base: Mapping[str, Any]) -> bool:
        """Make the base configuration the first trial, if it is in the space; return whether it is."""
        stored = {name: field.to_stored(base[name]) for name, field in self._space.items()}
        if None in stored.values():
            return False
        waiting = self._optuna.trial.TrialState.WAITING
        found = [one for one in self._study.get_trials(deepcopy=False) if one.user_attrs.get(_BASE)]
        if not any(one.state == waiting or self._is_complete(one) for one in found):
            self._study.enqueue_trial(stored, user_attrs={_BASE: True})
        return True

    def report(self, number: int, evaluation: int, value: float) -> None:
        """Record the mean return after an evaluation, numbered from 1."""
        self._storage.set_trial_intermediate_value(self._of(number), evaluation, value)

    def should_prune(self, number: int) -> bool:
        """Return whether a trial should be pruned after its latest evaluation."""
        return self._study.pruner.prune(self._study, self._frozen()[number])

    def complete(self, number: int, value: float) -> None:
        """Record the mean return of a trial that has finished."""
        self._study.tell(self._frozen()[number].number, value)

    def prune(self, number: int, reason: str | None = None) -> None:
        """Record that a trial was pruned; the sampler counts it as worse than the finished ones."""
        self._end(number, reason, self._optuna.trial.TrialState.PRUNED)

    def fail(self, number: int, reason: str) -> None:
        """Record that a trial failed; the sampler ignores it."""
        self._end(number, reason, self._optuna.trial.TrialState.FAIL)

    def all(self) -> list[Trial]:
        """Return the proposed trials in order."""
        return [self._trial(number, frozen) for number, frozen in enumerate(self._frozen())]

    @property
    def best(self) -> Trial | None:
        """The finished trial with the largest value, the first of equal ones."""
        complete = [trial for trial in self.all() if trial.state == "complete"]
        return max(complete, key=lambda trial: (trial.value, -trial.number), default=None)

    def _end(self, number: int, reason: str | None, state: Any) -> None:
        if reason is not None:
            self._storage.set_trial_user_attr(self._of(number), _REASON, safe_json.one_line(reason))
        self._study.tell(self._frozen()[number].number, state=state)

    def _frozen(self) -> list[Any]:
        """Return Optuna's trials, except enqueued ones and incomplete proposals of a killed process.

        A trial's number is its place among them. Optuna's own numbers also count the incomplete proposals, so a tuning
        that was killed while it proposed a trial would number the next ones differently.
        """
        waiting = self._optuna.trial.TrialState.WAITING
        found = self._study.get_trials(deepcopy=False)
        return [one for one in found if one.state != waiting and self._is_complete(one)]

    def _is_complete(self, frozen: Any) -> bool:
        return {*frozen.params} == {*self._space}

    def _fail_incomplete(self) -> None:
        """Fail the incomplete proposals of a killed process, which never started because they lack some options."""
        running = self._optuna.trial.TrialState.RUNNING
        for one in self._study.get_trials(states=[running]):
            if not self._is_complete(one):
                self._study.tell(one.number, state=self._optuna.trial.TrialState.FAIL)

    def _of(self, number: int) -> int:
        """Return Optuna's identifier of a trial."""
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, self._frozen()[number].number)

    def _trial(self, number: int, frozen: Any) -> Trial:
        states = {"RUNNING": "running", "COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
        return Trial(
            number,
            {name: field.value(frozen.params[name]) for name, field in self._space.items()},
            states[frozen.state.name],
            msgspec.convert(frozen.value, float | None),
            msgspec.convert(dict(sorted(frozen.intermediate_values.items())), dict[int, float]),
            frozen.user_attrs.get(_REASON),
        )

    def _distributions(self) -> dict[str, Any]:
        kinds = self._optuna.distributions
        return {
            name: (kinds.IntDistribution if field.whole else kinds.FloatDistribution)(field.low, field.high, field.log)
            if isinstance(field, Range)
            else kinds.CategoricalDistribution([field.to_stored(value) for value in field.checked_values])
            for name, field in self._space.items()
        }


def check_installed() -> Any:
    """Return Optuna.

    Raises:
        UsageError: if it, or a package that it needs, is not installed.
    """
    return import_optional("optuna", "ddpg tune", "install the extra 'tune'")


class _NoLock:
    """Replaces Optuna's lock, which is not needed because this process holds the folder's lock."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _drop_partial_line(path: Path) -> None:
    """Remove an incomplete last line from a journal, because the next line would be appended to it and lost."""
    if not path.exists():
        return
    with safe_json.open_regular_file(path) as (file, size):
        text = file.read()
    whole = text.rfind(b"\n") + 1
    if whole < size:
        os.truncate(path, whole)
