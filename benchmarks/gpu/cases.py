"""What is updated on a GPU and on a processor."""

import dataclasses

import numpy as np

UPDATES = 32  # of a call


@dataclasses.dataclass(frozen=True)
class Case:
    """The sizes of an update.

    Attributes:
        recipe: of :data:`ddpg.RECIPES`; ``None``: the defaults.
        hidden: units of the hidden layers.
        batch: transitions of a minibatch.
        observations, actions: numbers of each; HalfCheetah's.
    """

    recipe: str | None
    hidden: tuple[int, ...]
    batch: int
    observations: int = 17
    actions: int = 6

    @property
    def name(self) -> str:
        """A name for files."""
        return f"{self.recipe or 'ddpg'}_{'-'.join(map(str, self.hidden))}_{self.batch}"

    def minibatches(self) -> list[np.ndarray]:
        """Return a call's minibatches: uniform numbers in [-1, 1], and no state is terminal."""
        rng = np.random.default_rng(0)
        sizes = self.observations, self.actions, 1, self.observations
        fields = [rng.uniform(-1, 1, (UPDATES, self.batch, size)).astype(np.float32) for size in sizes]
        return [*fields, np.zeros((UPDATES, self.batch, 1), np.float32)]


# The first ones matter most: a machine may be there for a short time.
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
