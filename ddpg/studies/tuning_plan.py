"""The plan of a tuning: base configuration, search space and seeds, fixed once written to its folder.

tuning.json                    the plan, which must not change
trials.journal                 Optuna's journal of the trials: a line of JSON per event
trial-NNNN/SEED/ENV/1/         the run directory of a trial
best-NNNN/, preset/            the same for the comparison on fresh seeds
results.csv, best.toml, comparison.csv, tuning.md, history.png
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ddpg.checkpoints import atomic_write
from ddpg.config.algorithm_options import CONFIGS
from ddpg.errors import FileFault, UsageError
from ddpg.studies.search_space import Choices, Range, Space
from ddpg.studies.study import FILES, Group
from ddpg.studies.study_folder import TUNING_PLAN, changed_values, read_record

JOURNAL = "trials.journal"
FIRST_FRESH_SEED = 1000  # first seed of the comparison; trials use smaller seeds


class TuningPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that all trials of a tuning share.

    Attributes:
        base: the base configuration: environment, steps, evaluations, the trials' seeds, all options.
        preset: all options of the environment's preset, with which the best trial is compared.
        space: the range or the choices of each varied option, as in TOML; no value is null.
        whole: the names of the options with integer ranges.
        tuning_seed: seed of the sampler.
        pruning: whether trials are pruned.
    """

    format: Literal[1] = 1
    base: Group = msgspec.field(name="ground")  # the name in the file is kept so that old plans can be read
    preset: dict[str, Any]
    space: dict[str, Any]
    whole: list[str]
    tuning_seed: Annotated[int, msgspec.Meta(ge=0)]
    pruning: bool

    @property
    def fields(self) -> Space:
        """The search space."""
        return {
            name: Choices(told) if isinstance(told, list) else Range(**told, whole=name in self.whole)
            for name, told in self.space.items()
        }

    @property
    def warmup(self) -> int:
        """The number of the first evaluation considered for pruning, when a quarter of the learning is done."""
        starts = self.space.get("learning_starts", [self.base.options["learning_starts"]])
        latest = starts["high"] if isinstance(starts, dict) else max(starts)
        total = self.base.total_timesteps
        return math.ceil((latest + max(0, total - latest) / 4) / self.base.evaluation_interval)

    def nth(self, step: int) -> int:
        """Return the number, from 1, of the evaluation at a step; it follows from the interval, not from table rows."""
        base = self.base
        if step == base.total_timesteps:
            return math.ceil(step / base.evaluation_interval)
        return step // base.evaluation_interval

    def trial(self, number: int, changes: dict[str, Any]) -> Group:
        """Return the cells of a trial.

        Raises:
            UsageError: if its options are invalid together.
        """
        options = CONFIGS[self.base.algorithm].from_json(self.base.options | changes).to_json()
        return msgspec.structs.replace(self.base, configuration=f"trial-{number:04d}", options=options)

    def fresh(self, name: str, options: dict[str, Any], seeds: int) -> Group:
        """Return the cells of a configuration in the comparison, with ``seeds`` seeds that no trial used."""
        return msgspec.structs.replace(
            self.base,
            configuration=name,
            options=options,
            seeds=list(range(FIRST_FRESH_SEED, FIRST_FRESH_SEED + seeds)),
        )


def plan_of(base: Group, preset: dict[str, Any], space: Space, tuning_seed: int, pruning: bool) -> TuningPlan:
    """Return the plan of a tuning.

    Raises:
        UsageError: if a seed of the trials is also one of the comparison.
    """
    if max(base.seeds) >= FIRST_FRESH_SEED:
        raise UsageError(
            f"seeds={len(base.seeds)} must be at most {FIRST_FRESH_SEED}: the comparison uses those from there on"
        )
    return TuningPlan(
        base=base,
        preset=preset,
        space={name: field.as_json for name, field in space.items()},
        whole=[name for name, field in space.items() if isinstance(field, Range) and field.whole],
        tuning_seed=tuning_seed,
        pruning=pruning,
    )


def write_plan(root: Path, plan: TuningPlan) -> None:
    """Write a plan into its folder, or check that it equals the plan that is in the folder already.

    Raises:
        UsageError: if the folder has another plan, and the message names the difference, or is that of a study. A
            :class:`FileFault` if its file is damaged.
    """
    if (root / FILES.cells).exists():
        raise UsageError(f"{root} is the folder of a study; give another --root")
    path = root / TUNING_PLAN
    if not path.exists():
        if (root / JOURNAL).exists():
            raise FileFault(f"{root / JOURNAL} has no {TUNING_PLAN} beside it; bring that back, or give another --root")
        atomic_write.write_text(path, json.dumps(msgspec.to_builtins(plan)) + "\n")
        return
    before = read_record(path, "bring it back, or give another --root", TuningPlan)
    for name, old, new in _differences(before, plan):
        raise UsageError(
            f"{name} was {old!r} and is now {new!r}; the trials in {root} would not be one tuning any more: put that "
            "back, or give another --root"
        )


def _differences(one: TuningPlan, other: TuningPlan) -> Sequence[tuple[str, Any, Any]]:
    old, new = (msgspec.to_builtins(plan) for plan in (one, other))
    if one.base.algorithm == other.base.algorithm:  # options that are newer than the tuning count with their defaults
        kind, base = CONFIGS[one.base.algorithm], old["ground"]
        base["options"], old["preset"] = (kind.from_json(part).to_json() for part in (base["options"], old["preset"]))
    return changed_values(_flatten(old), _flatten(new))


def _flatten(plan: dict[str, Any]) -> dict[str, Any]:
    base = plan.pop("ground")
    options = {f"{name} of the base configuration": value for name, value in base.pop("options").items()}
    preset = {f"{name} of the preset": value for name, value in plan.pop("preset").items()}
    space = {f"the space of {name}": value for name, value in plan.pop("space").items()}
    return {**base, **plan, **options, **preset, **space}
