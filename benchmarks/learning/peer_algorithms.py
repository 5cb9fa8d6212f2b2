"""Define the algorithms of other packages that are compared with ours: their options and runs."""

import dataclasses

from benchmarks.learning.tables import PEER, PEER_STUDY, STRONGER_STUDY
from benchmarks.speed.packages import PEERS, Peer

STEPS, INTERVAL, EPISODES = 100_000, 5_000, 10
CHEETAH, HOPPER = "HalfCheetah-v5", "Hopper-v5"


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An algorithm of another package, and its runs.

    Attributes:
        study: the study's name for its runs in the CSV.
        peer: the peer of ``benchmarks.speed`` whose virtual environment has the package.
        package: the package's module.
        name: the class in that module.
        learning_starts: environment steps of random actions before the first update.
        runs: environment and seed of each run.
        options: further arguments of the class; all others keep the package's defaults.
        exploration_noise: standard deviation of Gaussian noise on actions in [-1, 1]; ``None``: the algorithm's own.
        steps: environment steps of each run.
    """

    study: str
    peer: Peer
    package: str
    name: str
    learning_starts: int
    runs: tuple[tuple[str, int], ...]
    options: dict = dataclasses.field(default_factory=dict)
    exploration_noise: float | None = None
    steps: int = STEPS

    def task(self, env_id: str, seed: int, steps: int | None = None) -> dict:
        """Return the task for the script; in a trial of other ``steps``, learning starts after a tenth of them."""
        return {
            "package": self.package,
            "algorithm": self.name,
            "options": self.options,
            "exploration_noise": self.exploration_noise,
            "env": env_id,
            "seed": seed,
            "steps": steps or self.steps,
            "learning_starts": min(self.learning_starts, steps // 10) if steps else self.learning_starts,
            "evaluation_interval": min(INTERVAL, steps or self.steps),
            "evaluation_episodes": EPISODES,
        }


def _stronger(
    label: str, package: str, name: str, runs: tuple[tuple[str, int], ...], steps: int = STEPS, **options: str
) -> Algorithm:
    """Return an algorithm with its package's defaults and the random steps of `plus`, named as in benchmarks.speed."""
    return Algorithm(STRONGER_STUDY, PEERS[label], package, name, 5_000, runs, options, steps=steps)


_TWO_SEEDS = tuple((env_id, seed) for seed in range(2) for env_id in (CHEETAH, HOPPER))
TQC, SAC, CROSSQ = "SBX TQC", "Stable-Baselines3 SAC", "SBX CrossQ"
ALGORITHMS = {
    # Hopper has four more seeds, because its runs differ most; they are compared with our td3 (beside.toml). Random
    # steps and noise are those of rl-baselines3-zoo for MuJoCo; layers are the package's defaults.
    PEER: Algorithm(
        PEER_STUDY,
        PEERS["Stable-Baselines3"],
        "stable_baselines3",
        "TD3",
        learning_starts=10_000,
        runs=(*_TWO_SEEDS, *((HOPPER, seed) for seed in range(2, 6))),
        options={"policy_kwargs": {"net_arch": [400, 300]}, "device": "cpu"},
        exploration_noise=0.1,
    ),
    TQC: _stronger(TQC, "sbx", "TQC", _TWO_SEEDS),  # SBX leaves the device to JAX
    SAC: _stronger(SAC, "stable_baselines3", "SAC", _TWO_SEEDS, device="cpu"),
    # A fifth of the steps still takes it more than twice the core-minutes of a whole run of `plus`.
    CROSSQ: _stronger(CROSSQ, "sbx", "CrossQ", tuple((CHEETAH, seed) for seed in range(2)), steps=20_000),
}
RUNS = [(label, env_id, seed) for label, algorithm in ALGORITHMS.items() for env_id, seed in algorithm.runs]
