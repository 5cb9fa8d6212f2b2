"""Actors and critics that name what they compute, so that a backward pass through them can be traced.

| name | tensor |
|---|---|
| mu, q | μ(s), Q(s, ·), for the minibatch's s |
| next_mu, next_q | the same for s′, of target or online network |
| joint | Q of (s, a) and (s′, a′), in one forward pass |
| action_gradient | ∇ₐQ(s, μ(s)), where it is formed in the forward pass |
| bounding | the bounded ∇ₐQ; or the action whose backward pass is bounded |

Of a critic that classifies, q is what its softmax is of. The names of a second critic's end in its number, ``q_2``.
"""

from typing import Any, TypeVar

import tensorflow as tf

from ddpg.laboratory.flow import FlowRecorder
from ddpg.networks.actor import ActorNetwork
from ddpg.networks.base import Network
from ddpg.networks.critic import CategoricalCritic, CriticNetwork

_Network = TypeVar("_Network", bound=Network)


def instrumented(network: _Network, recorder: FlowRecorder, number: int = 1) -> _Network:
    """Let ``recorder`` keep what an actor or a critic computes from now on, and where its gradients start backward.

    Args:
        network: it is changed, and returned.
        recorder: what keeps them.
        number: of a critic among several.
    """
    kind: type = _InstrumentedActor if isinstance(network, ActorNetwork) else _InstrumentedCritic
    network.__class__ = type(f"Probed{type(network).__name__}", (kind, type(network)), {})
    vars(network).update(_recorder=recorder, _suffix="" if number == 1 else f"_{number}")
    network.optimizer.compute_gradients = recorder.record(network.optimizer.compute_gradients)
    return network


class _InstrumentedActor(ActorNetwork):
    _recorder: FlowRecorder

    def __call__(self, states: tf.Tensor, training: bool = False) -> tf.Tensor:
        actions = super().__call__(states, training)
        _keep(self, _of(self, states, "mu"), actions)
        return actions

    def target(self, states: tf.Tensor) -> tf.Tensor:
        actions = super().target(states)
        _keep(self, _of(self, states, "mu"), actions)
        return actions

    def bound_action_gradient(self, action_gradients: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        # A tensor of its own where the bounding changes nothing.
        return self._recorder.name("bounding", tf.identity(super().bound_action_gradient(action_gradients, actions)))


class _InstrumentedCritic(CriticNetwork):
    _recorder: FlowRecorder
    _joint: Any = None

    def __call__(self, states: tf.Tensor, actions: tf.Tensor, training: bool = False) -> tf.Tensor:
        name = _of(self, states, "q")
        if name == "q" and not any(actions is tensor for tensor in self._recorder.nodes.values()):
            _keep(self, "bounding", actions)  # μ(s) as it comes from `backward_through`
        q = super().__call__(states, actions, training)
        _keep(self, name, self._output(q))
        return q

    def target(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        q = super().target(states, actions)
        _keep(self, _of(self, states, "q"), self._output(q))
        return q

    def joint(
        self, states: tf.Tensor, actions: tf.Tensor, next_states: tf.Tensor, next_actions: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if self._joint is None:  # built once: compiled, XLA merges the target's and the step's too
            nodes = dict(self._recorder.nodes)
            self._joint = super().joint(states, actions, next_states, next_actions)
            self._recorder.nodes = nodes  # without names for what is inside
            _keep(self, "joint", self._output(self._joint[0]).op.inputs[1])  # what is split in two
        return self._joint

    def action_gradient(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        gradient = super().action_gradient(states, actions)
        self._recorder.nodes.pop("q", None)  # an intermediate of ∇ₐQ
        return self._recorder.name("action_gradient", gradient)

    def _output(self, q: tf.Tensor) -> tf.Tensor:
        return self.logits_of(q) if isinstance(self, CategoricalCritic) else q


def _keep(network: Any, name: str, tensor: tf.Tensor) -> None:
    name = f"{name}{network._suffix}"
    if not (name.startswith("next_") and name in network._recorder.nodes):  # computed again, XLA merges the two
        network._recorder.name(name, tensor)


def _of(network: Any, states: tf.Tensor, name: str) -> str:
    return f"next_{name}" if states is network._recorder.nodes.get("next_s") else name
