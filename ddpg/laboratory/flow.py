"""Trace the backward pass of a path, or of a whole update, on its graph, to show where gradients really flow.

A path starts a backward pass with a call of ``compute_gradients(loss, var_list, grad_loss)``, or of ``tf.gradients``
for a network's weights. :class:`FlowRecorder` records these calls, and the tensors that actor and critics compute, by
the names below. :func:`trace_flow` finds the edges between these tensors, and with ``tf.gradients`` whether a gradient
passes each edge; the gradients of several backward passes are added. :func:`trace_update` traces both steps of an
update.

| name | tensor |
|---|---|
| mu, q | μ(s), Q(s, ·), for the minibatch's s |
| next_mu, next_q | the same for s′, from the target or the online network |
| encoded, next_encoded | the convolutions' output for s and s′ that the actor reads (``shared_encoder``) |
| joint | Q of (s, a) and (s′, a′), in one forward pass |
| action_gradient | ∇ₐQ(s, μ(s)), if the path forms it before its backward pass |
| bounding | the bounded ∇ₐQ; or the action whose backward pass is bounded |

For a critic that returns a distribution, q is its logits. Names of a second critic end in its number, ``q_2``.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import tensorflow as tf

from ddpg._tflearn import _replaced
from ddpg.agents.ddpg import DDPG
from ddpg.algorithms.ddpg import DDPGUpdate, policy_gradient
from ddpg.config.algorithm_options import DDPGConfig
from ddpg.errors import UsageError
from ddpg.gradients.td import ComputeGradients, GradientsAndVariables, dense
from ddpg.networks.base import Network
from ddpg.networks.value import Prediction
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1

START = "start"
RANDOM_STEPS = 500
UPDATES = 100

FIELD_NAMES = {"observations": "s", "actions": "a", "rewards": "r", "next_observations": "next_s"}

# Options that draw minibatches, scale data or run updates. They do not change where gradients flow, so the laboratory
# fixes them.
FIXED_OPTIONS: dict[str, Any] = {
    "n_steps": 1,
    "prioritised": None,
    "priority_exponent": None,
    "hindsight": 0,
    "normalize_observations": False,
    "normalize_rewards": False,
    "parameter_noise": 0.0,
    "dataset_share": None,
    "random_shift": 0,
    "bc_final": 1.0,
    "learning_starts": RANDOM_STEPS,
    "updates_per_call": 1,
    "jit": False,
    "compiler": "auto",
    "precision": "float32",
}


# Those of them that change neither the data nor the loss, but only when and how updates run.
_OF_RUNS = {"learning_starts", "updates_per_call", "jit", "compiler"}


class BackwardStart(NamedTuple):
    """A call that started a backward pass.

    Attributes:
        loss: the tensors that are differentiated.
        grad_loss: the gradients with which the pass starts, one for each tensor; ``None``: ones.
        variables: weights whose gradients were asked for.
        constants: tensors that ``tf.gradients`` was told to hold constant.
        gradients: what the call returned.
    """

    loss: list[tf.Tensor]
    grad_loss: list[tf.Tensor | None] | None
    variables: list[tf.Variable]
    constants: list[tf.Tensor]
    gradients: list[tf.Tensor | None]


class FlowRecorder:
    """Records the named tensors of a forward pass, and the starts of the backward passes after it.

    Attributes:
        nodes: ``{name: tensor}``, up to the start of the first backward pass.
        td_pairs: what the first critic's TD path returned last, ``[(gradient, variable)]``.
    """

    def __init__(self):
        self._joint: dict[str, Any] = {}
        self.td_pairs: GradientsAndVariables = []
        self.clear()

    def clear(self) -> None:
        """Forget nodes and starts, for the next path."""
        self.nodes: dict[str, tf.Tensor] = {}
        self._next: dict[tuple, Any] = {}
        self._begun = False
        self._starts: list[BackwardStart] = []

    def begin(self, batch: Batch, fields: Iterable[str] = tuple(FIELD_NAMES)) -> None:
        """Begin the next path: forget nodes and starts, and name ``fields`` of its minibatch."""
        self.clear()
        for field in fields:
            self.name(FIELD_NAMES[field], getattr(batch, field))

    def starts_of(self, pairs: GradientsAndVariables, path: str) -> list[BackwardStart]:
        """Return the recorded starts of the backward passes that a path's ``[(gradient, variable)]`` are computed from.

        Others, such as one that only checks what depends on what, are left out. Calls with the same start, one for each
        variable, are one.

        Raises:
            UsageError: if there is none; the message names the ``path``.
        """
        used = _ancestors([gradient for gradient, _ in pairs])
        starts: dict[tuple, BackwardStart] = {}
        for start in self._starts:
            if not used & {gradient.name for gradient in map(dense, start.gradients) if gradient is not None}:
                continue
            key = tuple(map(id, [*start.loss, *(start.grad_loss or []), *start.constants]))
            earlier = starts.get(key, start._replace(variables=[]))
            starts[key] = earlier._replace(variables=[*earlier.variables, *start.variables])
        if not starts:
            raise UsageError(
                f"{path} starts its backward pass neither with tf.gradients nor with the compute_gradients that it was "
                "given, so its gradients cannot be traced; call tf.gradients(loss, variables), compute_gradients(loss, "
                "var_list=variables) or, in a policy path, actor.optimizer.compute_gradients"
            )
        return [*starts.values()]

    def listen(self, network: Network, number: int = 1) -> None:
        """Record the tensors that an actor or a critic computes from now on, and where its backward pass starts.

        Of several critics, counted by ``number``, only the first one's backward pass is recorded.
        """
        network.hook = partial(self._hook, suffix="" if number == 1 else f"_{number}")
        if number == 1:
            network.optimizer.compute_gradients = self.record(network.optimizer.compute_gradients)

    def record(self, compute_gradients: ComputeGradients) -> ComputeGradients:
        """Return a ``compute_gradients`` whose calls are recorded."""

        def recorded(
            loss: tf.Tensor, var_list: list[tf.Variable], grad_loss: tf.Tensor | None = None
        ) -> GradientsAndVariables:
            pairs: GradientsAndVariables = []

            def call() -> list[tf.Tensor]:
                pairs.extend(compute_gradients(loss, var_list=var_list, grad_loss=grad_loss))
                return [gradient for gradient, _ in pairs]

            grad_ys = None if grad_loss is None else [grad_loss]
            self._record_call(call, BackwardStart([loss], grad_ys, list(var_list), [], []))
            return pairs

        return recorded

    @contextlib.contextmanager
    def recording(self, variables: Sequence[tf.Variable]) -> Iterator[None]:
        """Record, inside the block, calls of ``tf.gradients`` for any of ``variables`` too, as in a user's own path."""
        with contextlib.ExitStack() as replaced:
            for module in (tf, v1):
                call = partial(self._gradients, module.gradients, variables)
                replaced.enter_context(_replaced(module, "gradients", call))
            yield

    def _gradients(self, original: Callable, variables: Sequence[tf.Variable], *args: Any, **options: Any) -> Any:
        given = inspect.signature(original).bind(*args, **options).arguments
        asked = [x for x in tf.nest.flatten([given["xs"]]) if any(x is variable for variable in variables)]
        if not asked:
            return original(*args, **options)
        starts = given.get("grad_ys")
        constants = tf.nest.flatten([given.get("stop_gradients") or []])
        grad_ys = None if starts is None else tf.nest.flatten([starts])
        start = BackwardStart(tf.nest.flatten([given["ys"]]), grad_ys, asked, constants, [])
        return self._record_call(lambda: original(*args, **options), start)

    def _record_call(self, call: Callable[[], list[tf.Tensor]], start: BackwardStart) -> list[tf.Tensor]:
        """Make a call and record its start with its result; calls that it makes itself are not recorded."""
        self._begun, count = True, len(self._starts)
        gradients = call()
        self._starts[count:] = [start._replace(gradients=list(gradients))]
        return gradients

    def name(self, name: str, tensor: tf.Tensor) -> tf.Tensor:
        """Name a tensor and return it; once the backward pass has started, tensors belong to it and get no name."""
        if not self._begun:
            self.nodes[name] = tensor
        return tensor

    def _hook(self, method: str, call: Callable[..., Any], *inputs: tf.Tensor, suffix: str) -> Any:
        """Run a network's method and name its result; see :func:`ddpg.networks.base.hooked`."""
        if method == "td_gradients":
            return call(*inputs) if suffix else self._td_gradients(call, *inputs)
        if method == "bound_action_gradient":
            # The identity gives it a separate tensor even if the bounding changes nothing.
            return self.name("bounding", tf.identity(call(*inputs)))
        if method == "action_gradient":
            gradient = call(*inputs)
            self.nodes.pop("q", None)  # this Q is only an intermediate of ∇ₐQ
            return self.name("action_gradient", gradient)
        if method == "encode":
            return self._encode(call, *inputs)
        if method == "joint":
            return self._joint_pass(call, *inputs, suffix=suffix)
        states, *actions = inputs
        name = "q" if actions else "mu"
        if states is self.nodes.get("next_s"):
            name = f"next_{name}"
        elif f"{name}{suffix}" in self.nodes and self._beside(states, actions):
            return call(*inputs)
        elif actions and not any(actions[0] is tensor for tensor in self.nodes.values()):
            self._keep(f"bounding{suffix}", actions[0])  # μ(s), returned by `backward_through`
        result = self._once(call, *inputs) if name.startswith("next_") else call(*inputs)
        self._keep(f"{name}{suffix}", result.output if isinstance(result, Prediction) else result)
        return result

    def _encode(self, call: Callable[..., Any], states: tf.Tensor) -> tf.Tensor:
        encoded = self._once(call, states)
        for name in ("s", "next_s"):
            if states is self.nodes.get(name):
                self._keep(name.replace("s", "encoded"), encoded)
        return encoded

    def _beside(self, states: tf.Tensor, actions: Sequence[tf.Tensor]) -> bool:
        """Return whether inputs are those of a further term of a policy path: other states, or the replayed actions."""
        return states is not self.nodes.get("s") or any(action is self.nodes.get("a") for action in actions)

    def _td_gradients(self, call: Callable[..., Any], *inputs: tf.Tensor) -> GradientsAndVariables:
        assert isinstance(call, partial), "a network's hooked method is passed as a partial"
        with self.recording(call.args[0].trainable_variables):
            self.td_pairs = call(*inputs)
        return self.td_pairs

    def _once(self, call: Callable[..., Any], *inputs: tf.Tensor) -> Any:
        """Call once for the same inputs: compilers merge what is computed twice, such as μ(s′) for two joint passes."""
        assert isinstance(call, partial), "a network's hooked method is passed as a partial"
        key = (call.args[0], *sorted(call.keywords.items()), *(tensor.ref() for tensor in inputs))
        if key not in self._next:
            self._next[key] = call(*inputs)
        return self._next[key]

    def _joint_pass(self, call: Callable[..., Any], *inputs: tf.Tensor, suffix: str) -> Any:
        averages = isinstance(call, partial) and call.keywords.get("averages", False)
        name = f"next_q{suffix}" if averages else f"joint{suffix}"  # only y reads a pass on averages, its second half
        if name not in self._joint:  # built once: XLA merges the passes of target and step when it compiles them
            self._joint[name] = call(*inputs)
            self._keep(name, self._joint[name][0].output.op.inputs[1])  # the input of the split into halves
        return self._joint[name]

    def _keep(self, name: str, tensor: tf.Tensor) -> None:
        if not (name.startswith("next_") and name in self.nodes):  # XLA merges a repeated computation with the first
            self.name(name, tensor)


class Edge(NamedTuple):
    """``source`` feeds ``destination`` in the forward pass.

    Attributes:
        source: a node or a group of weights.
        destination: a node, or :data:`START`.
        gradients: the gradients that flow back along this edge alone, by ``tf.gradients``; ``None``: no gradient.
        stopped: a gradient arrives at ``destination`` and does not pass this edge.
        trained: the gradient along this edge reaches variables that the path computes gradients for.
    """

    source: str
    destination: str
    gradients: list[tf.Tensor] | None
    stopped: bool
    trained: bool


def edge_norms(session: tf.compat.v1.Session, edges: Sequence[Edge]) -> Callable[[Mapping[tf.Tensor, Any]], list[dict]]:
    """Build the norms of the gradients along edges; return a function ``feeds -> edges as data``.

    An edge as data has the fields of :class:`Edge`, with ``norm`` in place of the gradients: the L2 norm of all of them
    together, ``None`` if there is none.
    """
    norms = {place: tf.linalg.global_norm(edge.gradients) for place, edge in enumerate(edges) if edge.gradients}

    def measure(feeds: Mapping[tf.Tensor, Any]) -> list[dict]:
        lengths = session.run(norms, dict(feeds))
        rows = [edge._asdict() for edge in edges]
        for place, row in enumerate(rows):
            del row["gradients"]
            row["norm"] = float(lengths[place]) if place in lengths else None
        return rows

    return measure


@contextlib.contextmanager
def tracing(path: str) -> Iterator[None]:
    """Raise UsageError, naming ``path``, if TensorFlow finds an op without a gradient inside the block."""
    try:
        yield
    except LookupError as error:
        raise UsageError(
            f"the backward pass of {path} cannot be traced: {str(error).partition('. ')[0]}; if it needs no gradient "
            "there, apply tf.stop_gradient to the op's result"
        ) from error


def trace_flow(
    nodes: Mapping[str, tf.Tensor],
    weights: Mapping[str, Sequence],
    starts: Sequence[BackwardStart],
    fed: Mapping[str, str] | None = None,
) -> list[Edge]:
    """Find the forward edges between ``nodes``, and the gradient along each of them.

    Args:
        nodes, weights: tensors by name, and variables by the name of their group.
        starts: where backward passes start; their gradients are added.
        fed: ``{node that is a placeholder: node whose value is fed to it}``: edges through NumPy.
    """
    passes: dict[tuple[str, str], list[list[tf.Tensor | None]]] = {}
    for start in starts:
        for pair, found in _trace_pass(nodes, weights, start, dict(fed or {})).items():
            passes.setdefault(pair, []).extend([] if found is None else [found])
    places = [START, *nodes]
    edges = []
    for source, destination in sorted(passes, key=lambda pair: places.index(pair[1])):
        arrived = passes[source, destination]
        sums = [_sum(each) for each in zip(*arrived, strict=True)]
        gradients = [gradient for gradient in sums if gradient is not None] or None
        edges.append(Edge(source, destination, gradients, bool(arrived) and gradients is None, False))
    requested = {variable.handle.name for start in starts for variable in start.variables}
    trained = {group for group, variables in weights.items() if requested & {v.handle.name for v in variables}}
    return _mark_trained(edges, trained)


def _trace_pass(
    nodes: Mapping[str, tf.Tensor], weights: Mapping[str, Sequence], start: BackwardStart, fed: Mapping[str, str]
) -> dict[tuple[str, str], list[tf.Tensor | None] | None]:
    """Return the gradients of one pass by the edge, ``(source, destination)``; ``None``: none arrives there."""
    names = {tensor.name: name for name, tensor in nodes.items()}
    names |= {variable.handle.name: group for group, variables in weights.items() for variable in variables}
    constant = {name for name, node in nodes.items() if any(node is tensor for tensor in start.constants)}
    totals = tf.gradients(start.loss, list(nodes.values()), start.grad_loss, stop_gradients=start.constants)
    arriving = {name: None if name in constant else total for name, total in zip(nodes, totals, strict=True)}
    passed: dict[tuple[str, str], list[tf.Tensor | None] | None] = {}
    for destination in [START, *nodes]:
        if destination == START:
            output, begin, reached = start.loss, start.grad_loss, True
            sources = _feeding([*start.loss, *(start.grad_loss or [])], names)
        else:
            output, begin = nodes[destination], arriving[destination]
            reached = begin is not None
            sources = _feeding(output.op.inputs, names) | ({fed[destination]} if destination in fed else set())
        inputs = {source: list(weights[source]) if source in weights else [nodes[source]] for source in sorted(sources)}
        if not (reached and inputs):
            passed |= {(source, destination): None for source in inputs}
            continue
        # A gradient through another node belongs to that node's edges, so gradients stop at nodes.
        stops = [*(tensor for name, tensor in nodes.items() if name != destination), *start.constants]
        rest = iter(tf.gradients(output, tf.nest.flatten(list(inputs.values())), begin, stop_gradients=stops))
        for source, tensors in inputs.items():
            found = [next(rest) for _ in tensors]
            passed[source, destination] = [None] if source in constant else found
    return passed


def _sum(gradients: Sequence[tf.Tensor | None]) -> tf.Tensor | None:
    """Add those gradients that are not ``None``; ``None`` if all are."""
    found = [gradient for gradient in gradients if gradient is not None]
    return found[0] if len(found) == 1 else tf.add_n([*map(dense, found)]) if found else None


def _ancestors(tensors: Sequence) -> set[str]:
    """Return the names of ``tensors`` and of all tensors that they are computed from."""
    seen: set[str] = set()
    waiting = [tensor for tensor in map(dense, tensors) if isinstance(tensor, tf.Tensor)]
    while waiting:
        tensor = waiting.pop()
        if tensor.name not in seen:
            seen.add(tensor.name)
            waiting.extend(tensor.op.inputs)
    return seen


def _feeding(tensors: Sequence, names: Mapping[str, str]) -> set[str]:
    """Return the named tensors from which ``tensors`` are computed, without another named tensor in between."""
    found, seen = set(), set()
    waiting = [tensor for tensor in tensors if tensor is not None]
    while waiting:
        tensor = waiting.pop()
        if tensor.name in names:
            found.add(names[tensor.name])
        elif tensor.name not in seen:
            seen.add(tensor.name)
            waiting.extend(tensor.op.inputs)
    return found


def _mark_trained(edges: list[Edge], trained: set[str]) -> list[Edge]:
    """Mark the edges whose gradient flows on to a group of weights in ``trained``."""
    leading, count = set(trained), -1
    while len(leading) != count:
        count = len(leading)
        leading |= {edge.destination for edge in edges if edge.gradients is not None and edge.source in leading}
    return [edge._replace(trained=edge.gradients is not None and edge.source in leading) for edge in edges]


def trace_update(env: gym.Env, config: DDPGConfig, seed: int | None = None) -> dict[str, Any]:
    """Trace both steps of the update of ``config`` on one minibatch, after a few updates.

    With several critics, the first critic's step is traced; the others learn from the same y.

    Args:
        env: the environment from which the minibatch is collected, with random actions.
        config: the options. Those of :data:`FIXED_OPTIONS` are fixed, except ``prioritised="lap"``, which changes the
            loss.
        seed: of weights, actions and minibatch; ``None``: random.

    Returns:
        ``seed``, ``batch_size``, ``hidden``, ``critic_hidden``, ``options`` (those of ``config`` that differ from the
        defaults), ``not_traced`` (those of ``config`` that were fixed at another value and would change a number), and
        ``critic`` and ``actor``: the edges of their steps, see :class:`ddpg.laboratory.flow.Edge`, with their ``norm``
        in place of the gradients.

    Raises:
        UsageError: if the options do not fit ``env``, or a path's backward pass cannot be traced.
    """
    defaults = type(config)().to_json()
    changed = {name: value for name, value in config.to_json().items() if value != defaults[name]}
    lap = ("prioritised", "priority_exponent") if config.prioritised == "lap" else ()
    fixed = {name: value for name, value in FIXED_OPTIONS.items() if name not in lap}
    not_traced = [name for name in changed if name in fixed.keys() - _OF_RUNS and changed[name] != fixed[name]]
    agent = DDPG(env, config.replace(**fixed), seed)
    try:
        agent.learn(RANDOM_STEPS)
        agent.update(UPDATES)
        update = agent.symbolic_update
        assert isinstance(update, DDPGUpdate)
        values = agent.replay.sample(agent.behaviour.rng, 1, config.batch_size).map(lambda field: field[0])
        with agent.graph.as_default(), agent.session.as_default():
            recorder = FlowRecorder()
            recorder.listen(update.actor)
            for number, critic in enumerate(update.critics, start=1):
                recorder.listen(critic, number)
            batch = values.map(lambda field: v1.placeholder(tf.float32, field.shape))
            return {
                "seed": agent.seed,
                "batch_size": config.batch_size,
                "hidden": list(config.hidden),
                "critic_hidden": list(config.hidden_of_critics),
                "options": {name: value for name, value in changed.items() if name not in not_traced},
                "not_traced": {name: changed[name] for name in not_traced},
                "critic": _critic_step(agent, update, recorder, batch, values),
                "actor": _actor_step(agent, update, recorder, batch, values),
            }
    finally:
        agent.close()


def _critic_step(agent: DDPG, update: DDPGUpdate, recorder: FlowRecorder, batch: Batch, values: Batch) -> list[dict]:
    recorder.begin(batch)
    y = recorder.name("y", update.target(batch))
    feeds = dict(zip(batch, values, strict=True))
    fed = {}
    if update.critic.td_path.feeds_target:
        fed["fed_y"] = "y"
        feeds[recorder.name("fed_y", v1.placeholder(tf.float32, y.shape))] = agent.session.run(y, feeds)
    update.critic_step(batch, recorder.nodes.get("fed_y", y))
    starts = recorder.starts_of(recorder.td_pairs, "the path of td_target")
    with tracing("the path of td_target"):
        edges = trace_flow(recorder.nodes, weight_groups(update.actor, update.critics), starts, fed)
    return edge_norms(agent.session, edges)(feeds)


def _actor_step(agent: DDPG, update: DDPGUpdate, recorder: FlowRecorder, batch: Batch, values: Batch) -> list[dict]:
    recorder.begin(batch, ("observations", "actions"))
    with recorder.recording(update.actor.trainable_variables):
        pairs = policy_gradient(update.actor, update.critic, batch).gradients
    starts = recorder.starts_of(pairs, "the path of policy_gradient")
    with tracing("the path of policy_gradient"):
        edges = trace_flow(recorder.nodes, weight_groups(update.actor, update.critics), starts)
    return edge_norms(agent.session, edges)(dict(zip(batch, values, strict=True)))


def weight_groups(actor: Network, critics: Sequence[Network]) -> dict[str, list[tf.Variable]]:
    """Return the variables of the networks and of their targets; names of further critics end in their number."""
    networks = {"actor": actor}
    networks |= {f"critic_{number}" if number > 1 else "critic": critic for number, critic in enumerate(critics, 1)}
    groups = {name: network.variables for name, network in networks.items()}
    return groups | {f"target_{name}": network.target_variables for name, network in networks.items()}
