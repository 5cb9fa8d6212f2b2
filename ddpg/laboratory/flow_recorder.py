"""Record which tensors actor and critics compute, and where their gradients start backward, to trace it afterwards.

| name | tensor |
|---|---|
| mu, q | μ(s), Q(s, ·), for the minibatch's s |
| next_mu, next_q | the same for s′, of the target or the online network |
| joint | Q of (s, a) and (s′, a′), in one forward pass |
| action_gradient | ∇ₐQ(s, μ(s)), where it is formed in the forward pass |
| bounding | the bounded ∇ₐQ; or the action whose backward pass is bounded |

For a critic that returns a distribution, q is its logits. Names of a second critic end in its number, ``q_2``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf

from ddpg.errors import UsageError
from ddpg.gradients.td import ComputeGradients, GradientsAndVariables
from ddpg.networks.base import Network
from ddpg.networks.value import Prediction


class BackwardStart(NamedTuple):
    """The arguments of the call of ``compute_gradients`` that started backward."""

    loss: tf.Tensor
    grad_loss: tf.Tensor | None
    variables: list[tf.Variable]


class FlowRecorder:
    """Keeps the named tensors of a forward pass, and how backward starts after it.

    Attributes:
        nodes: ``{name: tensor}``, up to the start of backward.
        start: the first call of a recorded ``compute_gradients``.
    """

    def __init__(self):
        self._joint: dict[str, Any] = {}
        self.clear()

    def clear(self) -> None:
        """Forget nodes and start, for the next path."""
        self.nodes: dict[str, tf.Tensor] = {}
        self._start: BackwardStart | None = None

    @property
    def start(self) -> BackwardStart:
        """How backward started.

        Raises:
            UsageError: if the path never called a recorded ``compute_gradients``.
        """
        if self._start is None:
            raise UsageError(
                "the path did not start backward by the compute_gradients it was given, so its gradients cannot be "
                "traced; call compute_gradients(loss, var_list=...) or, in a policy path, actor.optimizer's"
            )
        return self._start

    def listen(self, network: Network, number: int = 1) -> None:
        """Record what an actor or a critic computes from now on, and where its gradients start backward.

        Args:
            network: its hook is set, and its optimizer's ``compute_gradients`` recorded.
            number: of a critic among several.
        """
        network.hook = partial(self._hook, suffix="" if number == 1 else f"_{number}")
        network.optimizer.compute_gradients = self.record(network.optimizer.compute_gradients)

    def record(self, compute_gradients: ComputeGradients) -> ComputeGradients:
        """Return ``compute_gradients``, recorded."""

        def recorded(
            loss: tf.Tensor, var_list: list[tf.Variable], grad_loss: tf.Tensor | None = None
        ) -> GradientsAndVariables:
            if self._start is None:
                self._start = BackwardStart(loss, grad_loss, list(var_list))
            return compute_gradients(loss, var_list=var_list, grad_loss=grad_loss)

        return recorded

    def name(self, name: str, tensor: tf.Tensor) -> tf.Tensor:
        """Name a tensor and return it; from the start of backward on, tensors belong to backward and get no name."""
        if self._start is None:
            self.nodes[name] = tensor
        return tensor

    def _hook(self, method: str, call: Callable[..., Any], *inputs: tf.Tensor, suffix: str) -> Any:
        """Run a network's method and name its result; see :func:`ddpg.networks.base.hooked`."""
        if method == "bound_action_gradient":
            # A tensor of its own also where the bounding changes nothing.
            return self.name("bounding", tf.identity(call(*inputs)))
        if method == "action_gradient":
            gradient = call(*inputs)
            self.nodes.pop("q", None)  # an intermediate of ∇ₐQ
            return self.name("action_gradient", gradient)
        if method == "joint":
            return self._joint_pass(call, *inputs, suffix=suffix)
        states, *actions = inputs
        name = "q" if actions else "mu"
        if states is self.nodes.get("next_s"):
            name = f"next_{name}"
        elif actions and not any(actions[0] is tensor for tensor in self.nodes.values()):
            self._keep(f"bounding{suffix}", actions[0])  # μ(s) as it comes from `backward_through`
        result = call(*inputs)
        self._keep(f"{name}{suffix}", result.output if isinstance(result, Prediction) else result)
        return result

    def _joint_pass(self, call: Callable[..., Any], *inputs: tf.Tensor, suffix: str) -> Any:
        if suffix not in self._joint:  # built once: compiled, XLA merges the target's and the step's too
            self._joint[suffix] = call(*inputs)
            self._keep(f"joint{suffix}", self._joint[suffix][0].output.op.inputs[1])  # what is split in two
        return self._joint[suffix]

    def _keep(self, name: str, tensor: tf.Tensor) -> None:
        if not (name.startswith("next_") and name in self.nodes):  # computed again, XLA merges the two
            self.name(name, tensor)
