"""The tasks whose training is timed: environments, layers, minibatches and numbers of steps."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Task:
    """Training with one update per step; the clock starts at step ``warm``, when everything is compiled.

    Attributes:
        env: gymnasium's id, or an environment of ``peers/shapes.py``.
        hidden: units of the hidden layers.
        batch: transitions in a minibatch.
        gamma: discount.
        steps: environment steps.
        starts: steps with random actions, before the first update.
        warm: the step at which the clock starts.
        memory: capacity of the replay memory, in transitions.
        goal: mean return of an evaluation at which training ends.
        evaluation_interval: environment steps between two evaluations.
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
    evaluation_interval: int = 500

    def brief(self) -> "Task":
        """Return a short version of the task, to check that everything works; its numbers are meaningless."""
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

# For stronger algorithms, some of which make only ten steps per second.
STRONGER = Task("HalfCheetah-v5", (256, 256), 256, 0.99, 1_500, starts=500, warm=700)

DISCRETE = Task("CartPole-v1", (64, 64), 64, 0.99, 22_000)

# For kinds whose clock starts or stops elsewhere.
SOON = dataclasses.replace(TASKS[PENDULUM], starts=100, warm=164, steps=200)
LEARNED = dataclasses.replace(TASKS[PENDULUM], steps=20_000, goal=-200.0)
REMEMBERED = Task("shapes:HalfCheetah", (8, 8), 8, 0.99, 210_000, starts=1_000_000, warm=10_000, memory=250_000)
