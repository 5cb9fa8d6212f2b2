"""The plan of a tuning: base configuration, search space, seeds; noted in its folder and never changed there.

tuning.json                    the plan: what may not change
trials.journal                 every trial as Optuna notes it: a line of JSON for each event
trial-NNNN/SEED/ENV/1/         a run of a trial, as any other
best-NNNN/, preset/            the same of the comparison, on fresh seeds
results.csv, best.toml, comparison.csv, tuning.md, history.png
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ddpg.checkpoints import atomic_write, safe_json
from ddpg.checkpoints.safe_json import convert
from ddpg.config.algorithm_options import CONFIGS
from ddpg.errors import FileFault, UsageError
from ddpg.studies.search_space import Choices, Range, Space, config_of
from ddpg.studies.study import Cell, Group
from ddpg.studies.study_folder import CellFolder

PLAN, JOURNAL = "tuning.json", "trials.journal"
FRESH = 1000  # the first seed of the comparison; those of trials are below


class TuningPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every trial has in common.

    Attributes:
        ground: environment, steps, evaluations, the trials' seeds and the options that are varied.
        preset: all options of the environment's preset, which the best is compared with.
        space: the table of each option that is varied, as TOML has it, but for nothing, which is null.
        whole: which of those that have a range are whole numbers.
        tuning_seed: of the sampler.
        pruning: whether trials are ended early.
    """

    format: Literal[1] = 1
    ground: Group
    preset: dict[str, Any]
    space: dict[str, Any]
    whole: list[str]
    tuning_seed: Annotated[int, msgspec.Meta(ge=0)]
    pruning: bool

    @property
    def fields(self) -> Space:
        """The space again."""
        return {
            name: Choices(told) if isinstance(told, list) else Range(**told, whole=name in self.whole)
            for name, told in self.space.items()
        }

    @property
    def warmup(self) -> int:
        """The first evaluation that a trial is judged by: before it, less than a quarter of its learning is done."""
        starts = self.space.get("learning_starts", [self.ground.options["learning_starts"]])
        latest = starts["high"] if isinstance(starts, dict) else max(starts)
        total = self.ground.total_timesteps
        return math.ceil((latest + max(0, total - latest) / 4) / self.ground.evaluation_interval)

    def nth(self, step: int) -> int:
        """Return which evaluation one at this step is, counted from 1: by the interval, not by rows."""
        ground = self.ground
        if step == ground.total_timesteps:
            return math.ceil(step / ground.evaluation_interval)
        return step // ground.evaluation_interval

    def trial(self, number: int, changes: dict[str, Any]) -> Group:
        """Return the cells of a trial.

        Raises:
            UsageError: its options cannot be together.
        """
        options = config_of(self.ground.algorithm, self.ground.options, changes)
        return msgspec.structs.replace(self.ground, configuration=f"trial-{number:04d}", options=options)

    def fresh(self, name: str, options: dict[str, Any], seeds: int) -> Group:
        """Return the cells of a configuration in the comparison, on so many seeds that no trial had."""
        return msgspec.structs.replace(
            self.ground, configuration=name, options=options, seeds=list(range(FRESH, FRESH + seeds))
        )


def plan_of(ground: Group, preset: dict[str, Any], space: Space, tuning_seed: int, pruning: bool) -> TuningPlan:
    """Return the plan of a tuning.

    Raises:
        UsageError: seeds that are those of the comparison.
    """
    if max(ground.seeds) >= FRESH:
        raise UsageError(
            f"seeds={len(ground.seeds)} must be at most {FRESH}: those from {FRESH} on are the comparison's"
        )
    return TuningPlan(
        ground=ground,
        preset=preset,
        space={name: field.told for name, field in space.items()},
        whole=[name for name, field in space.items() if isinstance(field, Range) and field.whole],
        tuning_seed=tuning_seed,
        pruning=pruning,
    )


def note_plan(root: Path, plan: TuningPlan) -> None:
    """Note a plan in its folder, or see that it is the one that is there.

    Raises:
        UsageError: there is another one; says what differs. A :class:`FileFault` where its file is damaged.
    """
    path = root / PLAN
    if not path.exists():
        if (root / JOURNAL).exists():
            raise FileFault(f"{root / JOURNAL} has no {PLAN} beside it; bring that back, or give another --root")
        atomic_write.write_text(path, json.dumps(msgspec.to_builtins(plan)) + "\n")
        return
    try:
        before = convert(f"{path}:", safe_json.read_json(path), TuningPlan)
    except FileFault as error:
        raise FileFault(f"{str(error).removesuffix(safe_json.ADVICE)}bring it back, or give another --root") from None
    for name, old, new in _differences(before, plan):
        raise UsageError(
            f"{name} was {old!r} and is now {new!r}; the trials in {root} would not be one tuning any more: put that "
            "back, or give another --root"
        )


def places_of(root: Path, group: Group) -> list[CellFolder]:
    """Return where the cells of a group are kept."""
    return [CellFolder(root, Cell(group, seed)) for seed in group.seeds]


def _differences(one: TuningPlan, other: TuningPlan) -> Sequence[tuple[str, Any, Any]]:
    plans = [msgspec.to_builtins(plan) for plan in (one, other)]
    if one.ground.algorithm == other.ground.algorithm:  # options that are newer than the tuning have their defaults
        kind = CONFIGS[one.ground.algorithm]
        for part in (plans[0]["ground"], plans[0]):
            name = "options" if "options" in part else "preset"
            part[name] = kind.from_json(part[name]).to_json()
    olds, news = map(_flat, plans)
    names = {**olds, **news}
    return [(name, olds.get(name), news.get(name)) for name in names if olds.get(name) != news.get(name)]


def _flat(plan: dict[str, Any]) -> dict[str, Any]:
    ground = plan.pop("ground")
    options = {f"{name} of the ground": value for name, value in ground.pop("options").items()}
    preset = {f"{name} of the preset": value for name, value in plan.pop("preset").items()}
    space = {f"the space of {name}": value for name, value in plan.pop("space").items()}
    return {**ground, **plan, **options, **preset, **space}
