"""Actor and critic that name what they compute, so that a backward pass through them can be traced.

| name | tensor |
|---|---|
| mu, q | μ(s), Q(s, ·), for the minibatch's s |
| next_mu, next_q | the same for s′, of target or online network |
| action_gradient | ∇ₐQ(s, μ(s)), where it is formed in the forward pass |
| bounding | the bounded ∇ₐQ; or the action whose backward pass is bounded |
"""

import tensorflow as tf

from ddpg.laboratory.flow import Recorder
from ddpg.networks.actor import ActorNetwork
from ddpg.networks.critic import CriticNetwork


class ProbedActor(ActorNetwork):
    """An :class:`ActorNetwork` whose outputs and starts of backward a :class:`Recorder` keeps."""

    def __init__(self, *args, recorder: Recorder, **options):
        self._recorder = recorder
        super().__init__(*args, **options)
        self.optimizer.compute_gradients = recorder.record(self.optimizer.compute_gradients)

    def __call__(self, states: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return μ(s), ``[B, A]``."""
        return self._recorder.name(_of(states, "mu", self._recorder), super().__call__(states, training))

    def target(self, states: tf.Tensor) -> tf.Tensor:
        """Return μ′(s), ``[B, A]``."""
        return self._recorder.name(_of(states, "mu", self._recorder), super().target(states))

    def bound_action_gradient(self, action_gradients: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Bound ∇ₐQ, ``[B, A]``; a tensor of its own where the bounding changes nothing."""
        return self._recorder.name("bounding", tf.identity(super().bound_action_gradient(action_gradients, actions)))


class ProbedCritic(CriticNetwork):
    """A :class:`CriticNetwork` whose outputs a :class:`Recorder` keeps."""

    def __init__(self, *args, recorder: Recorder, **options):
        self._recorder = recorder
        super().__init__(*args, **options)

    def __call__(self, states: tf.Tensor, actions: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return Q(s, a), ``[B, 1]``."""
        name = _of(states, "q", self._recorder)
        if name == "q" and not any(actions is tensor for tensor in self._recorder.nodes.values()):
            self._recorder.name("bounding", actions)  # μ(s) as it comes from `backward_through`
        return self._recorder.name(name, super().__call__(states, actions, training))

    def target(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return Q′(s, a), ``[B, 1]``."""
        return self._recorder.name(_of(states, "q", self._recorder), super().target(states, actions))

    def action_gradient(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return ∇ₐQ(s, a), ``[B, A]``."""
        gradient = super().action_gradient(states, actions)
        self._recorder.nodes.pop("q", None)  # an intermediate of ∇ₐQ
        return self._recorder.name("action_gradient", gradient)


def _of(states: tf.Tensor, name: str, recorder: Recorder) -> str:
    return f"next_{name}" if states is recorder.nodes.get("next_s") else name
