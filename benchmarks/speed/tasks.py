"""What is trained where time is taken."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Task:
    """Training with one update a step; timed from the environment's step ``warm`` on, when everything is compiled.

    Attributes:
        env: gymnasium's id, or an environment of ``peers/shapes.py``.
        hidden: units of the hidden layers.
        batch: transitions of a minibatch.
        gamma: discount.
        steps: environment steps.
        starts: of random actions, before updates.
        warm: where the clock starts.
        memory: transitions of the replay memory.
        goal: mean return of an evaluation, at which the task counts as learned.
        apart: environment steps from one evaluation to the next.
    """

    env: str
    hidden: tuple[int, ...]
    batch: int
    gamma: float
    steps: int
    starts: int = 1_000
    warm: int = 2_000
    memory: int = 100_000
    goal: float = float("inf")
    apart: int = 500

    def brief(self) -> "Task":
        """Return a task of the same kind that ends soon, to see whether everything works; its numbers say nothing."""
        starts = min(self.starts, 300) if self.starts < self.steps else self.starts
        return dataclasses.replace(
            self, steps=1_200, starts=starts, warm=600, memory=min(self.memory, 5_000), goal=-2_000.0
        )


PENDULUM, CHEETAH = "Pendulum 64-64", "HalfCheetah 256-256"
TASKS = {
    PENDULUM: Task("Pendulum-v1", (64, 64), 64, 0.98, 22_000),
    CHEETAH: Task("HalfCheetah-v5", (256, 256), 256, 0.99, 5_000),
    "HalfCheetah 400-300, batch 64": Task("HalfCheetah-v5", (400, 300), 64, 0.99, 5_000),
}

# Of stronger algorithms, some of which make ten steps a second.
STRONGER = Task("HalfCheetah-v5", (256, 256), 256, 0.99, 1_500, starts=500, warm=700)

# Of the kinds that want something else of training.
SOON = dataclasses.replace(TASKS[PENDULUM], starts=100, warm=164, steps=200)
LEARNED = dataclasses.replace(TASKS[PENDULUM], steps=20_000, goal=-200.0)
REMEMBERED = Task("shapes:HalfCheetah", (8, 8), 8, 0.99, 210_000, starts=1_000_000, warm=10_000, memory=250_000)
