"""The packages that are compared, and how each is installed and run."""

import dataclasses
import shutil
from pathlib import Path

from ddpg.compiler import jit

SCRIPTS = Path(__file__).parent / "peers"


@dataclasses.dataclass(frozen=True)
class Peer:
    """A package, and how it is installed and run.

    Attributes:
        script: file name in ``peers/``, without ``.py``.
        requirements: pip's requirements; empty to use this process's own environment.
        options: for the script.
        needs: a program that must be installed.
        own_env: whether it needs a virtual environment that it shares with no other script.
        lacks: kinds of measurements that it does not support.
        only: the one kind that measures it; ``None`` for all kinds that measure plain DDPG.
        keeps: whether it caches compiled code for the next process.
        empty_cache: whether our compiler starts with an empty cache.
        bfloat16: whether it is measured only where this processor multiplies bfloat16 numbers faster than float32.
        amx: whether it is measured only where this processor has AMX.
    """

    script: str
    requirements: tuple[str, ...] = ()
    options: dict = dataclasses.field(default_factory=dict)
    needs: str | None = None
    own_env: bool = False
    lacks: tuple[str, ...] = ()
    only: str | None = None
    keeps: bool = False
    empty_cache: bool = False
    bfloat16: bool = False
    amx: bool = False

    def obstacle(self) -> str:
        """Return why the package cannot be measured on this machine; "" if it can."""
        if self.needs and not shutil.which(self.needs):
            return f"it needs {self.needs}"
        if self.amx and not jit.host_registers().amx:
            return "this processor has no AMX"
        return jit.obstacle_to_bfloat16() if self.bfloat16 else ""


# From PyPI alone, pip installs PyTorch's CUDA wheel on Linux; configure an index or folder with the CPU wheel.
_TORCH = ("torch==2.13.0", "gymnasium[mujoco]>=1.1,<2")
_SB3 = (*_TORCH, "stable-baselines3>=2.4")
_SBX = (*_SB3, "sbx-rl>=0.20")
_TIANSHOU = (*_TORCH, "tianshou==2.0.1")
_TF_AGENTS = ("tf-agents==0.19.0", "tensorflow==2.15.1", "tf-keras==2.15.1", "tensorflow-probability==0.23.0")
_TF_AGENTS += ("gymnasium[mujoco]>=1.1,<2",)
_RLTOOLS = ("rltools[mkl]==2.2.1", "gymnasium[mujoco]>=1.1,<2")
OURS, OURS_EMPTY = "ours", "ours, nothing compiled before"
OURS_SINGLE, OURS_PLUS, OURS_DQN = "ours, one update per step", "ours, recipe plus", "ours, DQN"
OURS_BFLOAT16, OURS_BFLOAT16X3 = "ours, bfloat16", "ours, bfloat16x3"
_BFLOAT16, _BFLOAT16X3 = {"precision": "bfloat16"}, {"precision": "bfloat16x3"}
PEERS = {
    OURS: Peer("ours", keeps=True),
    OURS_EMPTY: Peer("ours", empty_cache=True),
    OURS_SINGLE: Peer("ours", options={"updates_per_call": 1}, keeps=True),
    OURS_BFLOAT16: Peer("ours", options=_BFLOAT16, keeps=True, bfloat16=True),
    OURS_BFLOAT16X3: Peer("ours", options=_BFLOAT16X3, keeps=True, amx=True),
    "ours, uncompiled": Peer("ours", options={"jit": False}),
    "ours, XLA": Peer("ours", options={"compiler": "xla"}),
    "Stable-Baselines3": Peer("stable_baselines", _SB3, {"package": "stable_baselines3"}),
    "SBX": Peer("stable_baselines", _SBX, {"package": "sbx"}),
    "SBX, 32 updates per 32 steps": Peer("stable_baselines", _SBX, {"package": "sbx", "every": 32}),
    "PyTorch, one loop": Peer("torch_loop", _TORCH),
    # Tianshou and TF-Agents allocate the whole replay memory at once, so growth per transition cannot be measured.
    "Tianshou": Peer("tianshou_ddpg", _TIANSHOU, own_env=True, lacks=("memory",)),
    # TF-Agents steps the environment from inside a graph; a policy called there waits forever for the only thread of a
    # single core.
    "TF-Agents": Peer("tf_agents_ddpg", _TF_AGENTS, own_env=True, lacks=("memory", "solve")),
    # Stronger algorithms, each with its package's own options; only the number of random steps is the same.
    OURS_PLUS: Peer("ours", options={"recipe": "plus"}, keeps=True, only="stronger"),
    f"{OURS_PLUS}, bfloat16": Peer(
        "ours", options={"recipe": "plus", **_BFLOAT16}, keeps=True, only="stronger", bfloat16=True
    ),
    f"{OURS_PLUS}, bfloat16x3": Peer(
        "ours", options={"recipe": "plus", **_BFLOAT16X3}, keeps=True, only="stronger", amx=True
    ),
    "SBX CrossQ": Peer("stable_baselines", _SBX, {"package": "sbx", "algorithm": "CrossQ"}, only="stronger"),
    "SBX TQC": Peer("stable_baselines", _SBX, {"package": "sbx", "algorithm": "TQC"}, only="stronger"),
    "Stable-Baselines3 SAC": Peer(
        "stable_baselines", _SB3, {"package": "stable_baselines3", "algorithm": "SAC"}, only="stronger"
    ),
    # DQN with the same networks, minibatches and moving averages.
    OURS_DQN: Peer("ours", options={"algorithm": "DQN"}, keeps=True, only="dqn"),
    f"{OURS_DQN}, XLA": Peer("ours", options={"algorithm": "DQN", "compiler": "xla"}, only="dqn"),
    "Stable-Baselines3 DQN": Peer(
        "stable_baselines", _SB3, {"package": "stable_baselines3", "algorithm": "DQN"}, only="dqn"
    ),
    "SBX DQN": Peer("stable_baselines", _SBX, {"package": "sbx", "algorithm": "DQN"}, only="dqn"),
    # RLtools' interface does not compile for the task that measures memory.
    "RLtools (TD3)": Peer("rltools_td3", _RLTOOLS, needs="g++", lacks=("learner", "memory"), keeps=True),
}
