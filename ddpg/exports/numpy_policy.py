"""Load an exported policy and act with it in NumPy, without importing TensorFlow."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy.typing as npt

from ddpg.errors import UsageError
from ddpg.exports import policy_file, zoo
from ddpg.interaction import spaces
from ddpg.interaction.action_mask import MaskedBox, check_masks
from ddpg.interaction.actions import finite_outputs, unbatch
from ddpg.interaction.validation import validate_bool, validate_path
from ddpg.policies.exploration import argmax_actions
from ddpg.policies.numpy_program import NumpyProgram, PortableProgram


class LoadedPolicy:
    """A deterministic policy: observations in, actions of the environment out.

    Attributes:
        observation_space: of the observations.
        action_space: of the actions.
    """

    def __init__(self, program: NumpyProgram, observation_space: gym.spaces.Box, action_space: gym.Space):
        self.observation_space, self.action_space = observation_space, action_space
        self._program, self._actions = program, policy_file.actions_of(action_space)

    def predict(
        self, observation: npt.ArrayLike, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[npt.NDArray[Any], None]:
        """Return ``(action, None)``, as the agent's ``predict`` did when it was exported.

        Args:
            observation: one observation or a batch of them, in env units.
            state: ignored; the policy has no memory.
            episode_start: ignored.
            deterministic: must be true: an exported policy does not explore.

        Returns:
            Actions of the environment, in the action space's shape and dtype, inside its bounds; for a batch, in the
            form that a vector environment takes. The annotated type is for a Box; parameterised actions are a tuple of
            arrays.

        Raises:
            UsageError: if the observation has another shape, holds NaN, makes the layers overflow, or ends in an action
                mask that is not zeros and ones, or ``deterministic`` is false.
        """
        if not validate_bool(deterministic, "deterministic"):
            raise UsageError("deterministic=False: an exported policy does not explore; load the agent instead")
        observations, single = spaces.as_batch(self.observation_space, observation, "observation")
        if isinstance(self.observation_space, MaskedBox):
            check_masks(observations, int(self.action_space.n))  # type: ignore[attr-defined] # a Discrete
        outputs = finite_outputs(self._program, observations)
        discrete = isinstance(self.action_space, gym.spaces.Discrete)
        actions = self._actions.to_env(argmax_actions(outputs) if discrete else outputs)
        return (unbatch(actions) if single else actions), None

    def __repr__(self) -> str:
        return f"LoadedPolicy({self.observation_space} -> {self.action_space})"


def load_policy(path: str | Path, *, portable: bool = False) -> LoadedPolicy:
    """Load a policy that ``agent.export(path, "numpy")`` or ``ddpg export RUN --format numpy`` has written.

    Reads data only, never code, and does not import TensorFlow.

    Args:
        path: the directory; or ``"zoo:NAME"``, a policy that comes with the package (``ddpg zoo`` lists them).
        portable: compute bit-identical outputs on every processor, which takes up to ten times as long
            (:mod:`ddpg.policies.numpy_program`). Policies of the zoo always do.

    Raises:
        UsageError: if there is no such directory or policy, or it is damaged.
    """
    portable = validate_bool(portable, "portable") or zoo.is_zoo(path)
    folder = zoo.read_entry(str(path)).folder if zoo.is_zoo(path) else validate_path(path)
    program, observation_space, action_space = policy_file.read(folder)
    return LoadedPolicy(PortableProgram.of(program) if portable else program, observation_space, action_space)
