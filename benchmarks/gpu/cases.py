"""The sizes of the updates that are measured on a GPU and on a processor."""

import dataclasses

import numpy as np

UPDATES = 32  # in one call
CELLS = "recipe", "layers", "batch"  # heads of the columns that name a case


@dataclasses.dataclass(frozen=True)
class Case:
    """The sizes of an update.

    Attributes:
        recipe: one of :data:`ddpg.RECIPES`, or ``None`` for the defaults.
        hidden: units of the hidden layers.
        batch: transitions in a minibatch.
        observations, actions: their sizes, by default HalfCheetah's.
    """

    recipe: str | None
    hidden: tuple[int, ...]
    batch: int
    observations: int = 17
    actions: int = 6

    @property
    def name(self) -> str:
        """The case's name in files."""
        return f"{self.recipe or 'ddpg'}_{'-'.join(map(str, self.hidden))}_{self.batch}"

    @property
    def cells(self) -> list[str]:
        """The cells of a table's columns :data:`CELLS`."""
        return [f"`{self.recipe or 'ddpg'}`", "-".join(map(str, self.hidden)), f"{self.batch:,}"]

    def minibatches(self) -> list[np.ndarray]:
        """Return the minibatches of a call: uniform numbers in [-1, 1], no terminal states."""
        rng = np.random.default_rng(0)
        sizes = self.observations, self.actions, 1, self.observations
        fields = [rng.uniform(-1, 1, (UPDATES, self.batch, size)).astype(np.float32) for size in sizes]
        return [*fields, np.zeros((UPDATES, self.batch, 1), np.float32)]


# The most important cases come first, since a machine may be available only briefly.
CASES = (
    Case(None, (256, 256), 256),
    Case("plus", (256, 256), 96),
    Case(None, (1024, 1024), 256),
    Case(None, (256, 256), 4096),
    Case(None, (1024, 1024), 4096),
    Case(None, (64, 64), 64),
    Case("plus", (256, 256), 1024),
    Case(None, (256, 256), 1024),
    Case(None, (1024, 1024), 1024),
    Case("plus", (1024, 1024), 1024),
)
