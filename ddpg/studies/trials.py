"""Tuning trials in an Optuna journal: what is tried next, and what is pruned. The only module that knows Optuna.

The journal is lines of JSON, and reading it runs nothing that it says: of Optuna's storages and samplers, pickles are
read from Redis, and by CMA-ES, only. One process writes it, which owns its folder by the operating system's lock;
Optuna's own lock, a link that a kill would leave behind, is not used.
"""

import dataclasses
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ddpg.checkpoints import safe_json
from ddpg.errors import FileFault, UsageError
from ddpg.studies.search_space import Range, Space

_NAME = "ddpg"
_REASON, _GROUND = "reason", "ground"


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial as far as it is known.

    Attributes:
        number: from 0 on.
        changes: what it says of the options that are varied.
        state: ``running``, ``complete``, ``pruned`` or ``failed``.
        value: mean evaluation return (env units) over its seeds at the end, or where it was pruned.
        told: the same after each evaluation that it was judged by; the run's evaluations are counted from 1.
        reason: why it was pruned or failed, where that was not a comparison with others.
    """

    number: int
    changes: dict[str, Any]
    state: str
    value: float | None
    told: dict[int, float]
    reason: str | None


class Trials:
    """The trials of one tuning: asks for the next, takes what was measured."""

    def __init__(self, path: Path, space: Space, seed: int, pruning: bool = True):
        """Open a journal, or begin one.

        Args:
            path: of the file.
            space: what is varied.
            seed: of what is proposed. The same seed after the same results proposes the same, also after a kill.
            pruning: end early what is worse than the median of the others at the same evaluation.

        Raises:
            UsageError: Optuna is not installed; a :class:`FileFault` where the journal is damaged.
        """
        optuna = check_installed()
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna, self._space, self._seed = optuna, space, seed
        _mend(path)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=5)
        lock: Any = _NoLock()  # Optuna's class of them cannot be a base: it is there with the extra alone
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what Optuna calls experimental
                self._storage = optuna.storages.JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
            self._study = optuna.create_study(
                study_name=_NAME,
                storage=self._storage,
                direction="maximize",
                load_if_exists=True,
                pruner=pruner if pruning else optuna.pruners.NopPruner(),
            )
            self._id = self._storage.get_study_id_from_name(_NAME)
            self._let_go_of_halves()
            self.all()
        except OSError:
            raise
        except Exception as error:  # whatever Optuna makes of a line that is not its own
            what = safe_json.one_line(f"{type(error).__name__}: {error}")
            raise FileFault(
                f"{path} is no journal of this tuning ({what}); bring it back, or give another --root"
            ) from None

    def ask(self) -> Trial:
        """Return the next trial, which is then running."""
        number = len(self.all())
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.sampler = self._optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            asked = self._study.ask(fixed_distributions=self._distributions())
        return self._trial(self._storage.get_trial(self._of(asked.number)))

    def enqueue_ground(self, ground: Mapping[str, Any]) -> bool:
        """Let the ground itself be tried first; return whether it is in the space."""
        kept = {name: field.kept(ground[name]) for name, field in self._space.items()}
        if None in kept.values():
            return False
        waiting = self._optuna.trial.TrialState.WAITING
        found = [one for one in self._study.get_trials(deepcopy=False) if one.user_attrs.get(_GROUND)]
        if not any(one.state == waiting or self._is_whole(one) for one in found):
            self._study.enqueue_trial(kept, user_attrs={_GROUND: True})
        return True

    def report(self, number: int, evaluation: int, value: float) -> None:
        """Note the mean return after an evaluation; the evaluations of a trial are counted from 1."""
        self._storage.set_trial_intermediate_value(self._of(number), evaluation, value)

    def is_hopeless(self, number: int) -> bool:
        """Return whether a trial is to be ended after its newest evaluation."""
        return self._study.pruner.prune(self._study, self._storage.get_trial(self._of(number)))

    def complete(self, number: int, value: float) -> None:
        """Note that a trial has reached its end, with this mean return."""
        self._study.tell(number, value)

    def prune(self, number: int, reason: str | None = None) -> None:
        """Note that a trial was ended early; its options are taken to be worse than those that were not."""
        self._end(number, reason, self._optuna.trial.TrialState.PRUNED)

    def fail(self, number: int, reason: str) -> None:
        """Note that a trial failed, which says nothing of its options."""
        self._end(number, reason, self._optuna.trial.TrialState.FAIL)

    def all(self) -> list[Trial]:
        """Return the trials that were asked for, in their order."""
        return [self._trial(frozen) for frozen in self._frozen()]

    @property
    def best(self) -> Trial | None:
        """The trial with the largest value of those that reached their end, the first of equal ones."""
        complete = [trial for trial in self.all() if trial.state == "complete"]
        return max(complete, key=lambda trial: (trial.value, -trial.number), default=None)

    def _end(self, number: int, reason: str | None, state: Any) -> None:
        if reason is not None:
            self._storage.set_trial_user_attr(self._of(number), _REASON, safe_json.one_line(reason))
        self._study.tell(number, state=state)

    def _frozen(self) -> list[Any]:
        """Return Optuna's trials but for those that wait, and those that a kill left half proposed."""
        waiting = self._optuna.trial.TrialState.WAITING
        found = self._study.get_trials(deepcopy=False)
        return [one for one in found if one.state != waiting and self._is_whole(one)]

    def _is_whole(self, frozen: Any) -> bool:
        return {*frozen.params} == {*self._space}

    def _let_go_of_halves(self) -> None:
        """End the trials that a kill left without all of their options: they were never begun."""
        running = self._optuna.trial.TrialState.RUNNING
        for one in self._study.get_trials(states=[running]):
            if not self._is_whole(one):
                self._study.tell(one.number, state=self._optuna.trial.TrialState.FAIL)

    def _of(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)

    def _trial(self, frozen: Any) -> Trial:
        states = {"RUNNING": "running", "COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
        return Trial(
            frozen.number,
            {name: field.value(frozen.params[name]) for name, field in self._space.items()},
            states[frozen.state.name],
            frozen.value,
            dict(sorted(frozen.intermediate_values.items())),
            frozen.user_attrs.get(_REASON),
        )

    def _distributions(self) -> dict[str, Any]:
        kinds = self._optuna.distributions
        return {
            name: (kinds.IntDistribution if field.whole else kinds.FloatDistribution)(field.low, field.high, field.log)
            if isinstance(field, Range)
            else kinds.CategoricalDistribution([field.kept(value) for value in field.tried])
            for name, field in self._space.items()
        }


def check_installed() -> Any:
    """Return Optuna.

    Raises:
        UsageError: it, or what it needs, is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise UsageError(f"ddpg tune needs the package {error.name!r}; install the extra 'tune'") from None
    return optuna


class _NoLock:
    """In the place of Optuna's lock: one process owns the folder already."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _mend(path: Path) -> None:
    """Take a last line that was cut short out of a journal: what is added next would be lost with it."""
    if not path.exists():
        return
    with safe_json.open_regular_file(path) as (file, size):
        text = file.read()
    whole = text.rfind(b"\n") + 1
    if whole < size:
        os.truncate(path, whole)
