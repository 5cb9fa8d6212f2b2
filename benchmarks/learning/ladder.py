"""Define the ladder, which adds options to DDPG one at a time up to ``plus``: each rung's runs, label and page."""

import dataclasses
from collections.abc import Sequence

from benchmarks.learning.long_form import Cell

STUDY, SEEDS = "ladder", 2


@dataclasses.dataclass(frozen=True)
class Rung:
    """One rung of the ladder.

    Attributes:
        configuration: the name in the study.
        label: the name in tables and pictures.
        page: the page of ``docs/options`` about the added option; ``None`` if the rung adds none.
        study: the study that has its cells.
    """

    configuration: str
    label: str
    page: str | None
    study: str = STUDY


RUNGS = (
    Rung("ddpg", "DDPG", None, "table"),
    Rung("twin_critics", "+ two critics", "n_critics"),
    Rung("policy_delay", "+ policy delay 2", "policy_delay"),
    Rung("target_smoothing", "+ target smoothing (now TD3)", "target_policy_noise"),
    Rung("joint_pass", "+ joint pass, batch renorm.", "target"),
    Rung("adam_beta1", "+ Adam's β₁ 0.5", "adam_beta1"),
    Rung("every_update", "+ policy delay 1 again", "policy_delay"),
    Rung("cooldown", "+ cooldown of learning rates", "schedules"),
    Rung("categorical", "+ categorical critics, scaled rewards", "critic"),
    Rung("small_inputs", "+ softer norm (renorm_soft)", "norms"),
    Rung("plus", "+ three updates of 96 per step: plus", "updates_per_step", "table"),
)


def cells_of(rung: Rung, cells: Sequence[Cell], env_id: str) -> list[Cell]:
    """Return a rung's cells with the seeds that all rungs have; those of the study ``table`` have more seeds."""
    key = rung.study, env_id, rung.configuration
    return [cell for cell in cells if cell.key[:3] == key and cell.seed < SEEDS]


def environments(cells: Sequence[Cell]) -> list[str]:
    """Return the environments of the ladder, in the file's order."""
    return list(dict.fromkeys(cell.env_id for cell in cells if cell.study == STUDY))
