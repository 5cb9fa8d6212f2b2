"""What is timed, and in which packages."""

import dataclasses
from pathlib import Path

PEERS = Path(__file__).parent / "peers"


@dataclasses.dataclass(frozen=True)
class Task:
    """Training with one update a step; timed from the environment's step ``warm`` on, when everything is compiled.

    Attributes:
        env: gymnasium's id.
        hidden: units of the hidden layers.
        batch: transitions of a minibatch.
        gamma: discount.
        steps: environment steps.
        starts: of random actions, before updates.
        warm: where the clock starts.
        memory: transitions of the replay memory.
    """

    env: str
    hidden: tuple[int, ...]
    batch: int
    gamma: float
    steps: int
    starts: int = 1_000
    warm: int = 2_000
    memory: int = 100_000


@dataclasses.dataclass(frozen=True)
class Peer:
    """A package, and how it is asked.

    Attributes:
        script: in ``peers/``.
        requirements: what pip installs for it; none: what this process has.
        options: for the script.
        needs: a program that must be there.
        own: it wants a virtual environment of its own.
    """

    script: str
    requirements: tuple[str, ...] = ()
    options: dict = dataclasses.field(default_factory=dict)
    needs: str | None = None
    own: bool = False


TASKS = {
    "Pendulum 64-64": Task("Pendulum-v1", (64, 64), 64, 0.98, 22_000),
    "HalfCheetah 256-256": Task("HalfCheetah-v5", (256, 256), 256, 0.99, 5_000),
    "HalfCheetah 400-300, batch 64": Task("HalfCheetah-v5", (400, 300), 64, 0.99, 5_000),
}

_TORCH = ("torch==2.13.0",)
_SB3 = (*_TORCH, "stable-baselines3>=2.4", "gymnasium[mujoco]>=1.1,<2")
_SBX = (*_SB3, "sbx-rl>=0.20")
_TF_AGENTS = ("tf-agents==0.19.0", "tensorflow==2.15.1", "tf-keras==2.15.1", "tensorflow-probability==0.23.0")
_TF_AGENTS += ("gymnasium[mujoco]>=1.1,<2",)
PEERS_BY_NAME = {
    "ours": Peer("ours"),
    "ours, uncompiled": Peer("ours", options={"jit": False}),
    "ours, XLA": Peer("ours", options={"compiler": "xla"}),
    "Stable-Baselines3": Peer("stable_baselines", _SB3, {"package": "stable_baselines3"}),
    "SBX": Peer("stable_baselines", _SBX, {"package": "sbx"}),
    "SBX, 32 updates per 32 steps": Peer("stable_baselines", _SBX, {"package": "sbx", "every": 32}),
    "PyTorch, one loop": Peer("torch_loop", (*_TORCH, "gymnasium[mujoco]>=1.1,<2")),
    "TF-Agents": Peer("tf_agents_ddpg", _TF_AGENTS, own=True),
    "RLtools (TD3)": Peer("rltools_td3", ("rltools[mkl]==2.2.1", "gymnasium[mujoco]>=1.1,<2"), needs="g++"),
}
