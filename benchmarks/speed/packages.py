"""The packages beside which ours is measured, and how each is asked."""

import dataclasses
from pathlib import Path

SCRIPTS = Path(__file__).parent / "peers"


@dataclasses.dataclass(frozen=True)
class Peer:
    """A package, and how it is asked.

    Attributes:
        script: in ``peers/``.
        requirements: what pip installs for it; none: what this process has.
        options: for the script.
        needs: a program that must be there.
        own: it wants a virtual environment of its own.
        lacks: kinds of measurements for which it has no call.
        only: the one kind that measures it; ``None``: every kind of what a package makes of plain DDPG.
        keeps: it keeps what it compiled for the next process.
        empty_cache: what our compiler keeps on disk is not there yet.
    """

    script: str
    requirements: tuple[str, ...] = ()
    options: dict = dataclasses.field(default_factory=dict)
    needs: str | None = None
    own: bool = False
    lacks: tuple[str, ...] = ()
    only: str | None = None
    keeps: bool = False
    empty_cache: bool = False


# pip takes the CPU's wheel where a folder or an index with it is configured; from PyPI alone, Linux gets CUDA's.
_TORCH = ("torch==2.13.0", "gymnasium[mujoco]>=1.1,<2")
_SB3 = (*_TORCH, "stable-baselines3>=2.4")
_SBX = (*_SB3, "sbx-rl>=0.20")
_TIANSHOU = (*_TORCH, "tianshou==2.0.1")
_TF_AGENTS = ("tf-agents==0.19.0", "tensorflow==2.15.1", "tf-keras==2.15.1", "tensorflow-probability==0.23.0")
_TF_AGENTS += ("gymnasium[mujoco]>=1.1,<2",)
_RLTOOLS = ("rltools[mkl]==2.2.1", "gymnasium[mujoco]>=1.1,<2")
OURS, OURS_EMPTY = "ours", "ours, nothing compiled before"
OURS_SINGLE, OURS_PLUS = "ours, one update per step", "ours, recipe plus"
PEERS = {
    OURS: Peer("ours", keeps=True),
    OURS_EMPTY: Peer("ours", empty_cache=True),
    OURS_SINGLE: Peer("ours", options={"updates_per_call": 1}, keeps=True),
    "ours, uncompiled": Peer("ours", options={"jit": False}),
    "ours, XLA": Peer("ours", options={"compiler": "xla"}),
    "Stable-Baselines3": Peer("stable_baselines", _SB3, {"package": "stable_baselines3"}),
    "SBX": Peer("stable_baselines", _SBX, {"package": "sbx"}),
    "SBX, 32 updates per 32 steps": Peer("stable_baselines", _SBX, {"package": "sbx", "every": 32}),
    "PyTorch, one loop": Peer("torch_loop", _TORCH),
    # Its memory is written over when it is made, so what a transition adds is not seen.
    "Tianshou": Peer("tianshou_ddpg", _TIANSHOU, own=True, lacks=("memory",)),
    # So is this one's. It steps its environment from inside a graph, where another one, its policy's, waits forever for
    # the thread on a single core.
    "TF-Agents": Peer("tf_agents_ddpg", _TF_AGENTS, own=True, lacks=("memory", "solve")),
    # Its interface does not compile for what memory is measured with.
    # Stronger algorithms, each with its own package's options, but for when learning begins.
    OURS_PLUS: Peer("ours", options={"recipe": "plus"}, keeps=True, only="stronger"),
    "SBX CrossQ": Peer("stable_baselines", _SBX, {"package": "sbx", "algorithm": "CrossQ"}, only="stronger"),
    "SBX TQC": Peer("stable_baselines", _SBX, {"package": "sbx", "algorithm": "TQC"}, only="stronger"),
    "Stable-Baselines3 SAC": Peer(
        "stable_baselines", _SB3, {"package": "stable_baselines3", "algorithm": "SAC"}, only="stronger"
    ),
    "RLtools (TD3)": Peer("rltools_td3", _RLTOOLS, needs="g++", lacks=("learner", "memory"), keeps=True),
}
