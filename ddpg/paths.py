"""The gradient laboratory: every path and bounding side by side, on one real minibatch of an environment.

On the same weights and the same transitions, each path's gradient is compared with its siblings' and with
central differences in float64, timed, and its backward pass traced.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from ddpg import update
from ddpg.agent import DDPG
from ddpg.config import DDPGConfig
from ddpg.errors import UsageError
from ddpg.gradients import check
from ddpg.gradients.bounding import BOUNDINGS
from ddpg.gradients.flow import Recorder, trace
from ddpg.gradients.policy import POLICY_GRADIENTS
from ddpg.gradients.td import TD_TARGETS, TDPath
from ddpg.networks.layers import mlp
from ddpg.networks.probed import ProbedActor, ProbedCritic
from ddpg.paths_reference import Reference
from ddpg.replay import Batch

v1 = tf.compat.v1

RANDOM_STEPS = 500
UPDATES = 10
COORDINATES = 150
EQUAL = 1e-5  # of the gradient's largest value: float32 rounding
TIMED_CALLS = 10


def compare_paths(
    env: gym.Env,
    config: DDPGConfig,
    seed: int | None = None,
    *,
    td_targets: Mapping[str, Callable] = TD_TARGETS,
    policy_gradients: Mapping[str, Callable] = POLICY_GRADIENTS,
) -> dict[str, Any]:
    """Measure every TD path, and every policy path under every bounding.

    Args:
        env: where the minibatch comes from.
        config: networks, discount, batch size; the paths named in it and its clippings are set aside.
        seed: of weights, actions, minibatch and coordinates; ``None``: random.
        td_targets: by name; the first is what the others are compared with. One's own take part if they accept
            ``compute_gradients`` as the supplied ones do.
        policy_gradients: by name; the first is what the others are compared with.

    Returns:
        What ``ddpg paths --json`` prints: ``td`` and ``policy``, lists of rows with

        - ``gradient_norm``: over all weights, in float32;
        - ``difference``: from the first path, over all weights: ``max_abs``, ``max_relative`` (to the largest
          value there), and whether they are ``equal``;
        - ``finite_difference``: the same from central differences, and the ``cosine``, at ``coordinates``
          sampled weights;
        - ``milliseconds``, ``milliseconds_compiled``: of one gradient, its target included; ``None`` where it
          cannot be compiled;
        - ``reached``: in how many variables of each group ``tf.gradients`` finds a gradient;
        - ``edges``: the traced backward pass, see :class:`ddpg.gradients.flow.Edge`, with its ``norm``.

    Raises:
        UsageError: networks that NumPy cannot mirror, or a path whose start of backward cannot be seen.
    """
    laboratory = Laboratory(env, config, seed)
    return {
        "seed": laboratory.seed,
        "batch_size": config.batch_size,
        "hidden": list(config.hidden),
        "outside": laboratory.outside(),
        "td": _compared([laboratory.td(name, path) for name, path in td_targets.items()], {}),
        "policy": [
            row
            for bounding in BOUNDINGS
            for row in _compared(
                [laboratory.policy(name, path, bounding) for name, path in policy_gradients.items()],
                {"bounding": bounding},
            )
        ],
    }


class Laboratory:
    """Networks with one minibatch, on which paths are tried.

    Weights are those of a new agent, with their output layers scaled so that Q and the pre-activations of the
    actions have mean 0 and deviation 1 on the minibatch (gradients are not tiny then, and with a linear head a
    third of the actions lie outside the box), before and after a few updates: the targets, synchronised between,
    are not the online networks.

    Args:
        env: where the minibatch comes from, by random actions.
        config: networks, discount, batch size.
        seed: of everything random.
    """

    def __init__(self, env: gym.Env, config: DDPGConfig, seed: int | None):
        config = config.replace(
            td_target="placeholder",  # an agent that needs no compilation for its few updates
            policy_gradient="chain_rule",
            clip_delta=None,
            action_gradient_clip=None,
            learning_starts=RANDOM_STEPS,
            updates_per_call=1,
            jit=False,
        )
        agent = DDPG(env, config, seed)
        agent.learn(RANDOM_STEPS)
        self.seed = agent.seed
        self._agent = agent  # its session lives as long as it does
        self._session, self._gamma = agent.session, config.gamma
        self._rng = np.random.default_rng(agent.seed)
        self._values = Batch(*(field[0] for field in agent.replay.sample(self._rng, 1, config.batch_size)))
        self._recorder = Recorder()
        with agent.graph.as_default(), agent.session.as_default():
            layers = {"activation": config.activation, "norm": config.norm}
            spaces = agent.observation_space, agent.actor.action_space
            self._critic = ProbedCritic(
                *spaces,
                network=mlp(config.hidden, **layers, action_layer=config.action_layer),
                recorder=self._recorder,
            )
            self._actors = {
                name: ProbedActor(*spaces, network=mlp(config.hidden, **layers), bounding=name, recorder=self._recorder)
                for name in BOUNDINGS
            }
            self._batch = Batch(*(v1.placeholder(tf.float32, field.shape) for field in self._values))
            self._y = v1.placeholder(tf.float32, [config.batch_size, 1], name="y")
            self._prepare()
            groups = self._groups(self._actors["squashing"])
            weights = {name: self._session.run(variables) for name, variables in groups.items()}
            self._reference = Reference(self._actors["squashing"], self._critic, weights, self._values, self._gamma)

    def outside(self) -> dict[str, float]:
        """Return the share of actions μ(s) outside their box, by bounding."""
        with self._session.graph.as_default(), self._session.as_default():
            return {
                name: float((np.abs(actor.predict(self._values.observations)) > 1).mean())
                for name, actor in self._actors.items()
            }

    def td(self, name: str, path: Callable) -> dict[str, Any]:
        """Try a TD path: its row, and the gradient under ``gradients``."""
        actor, critic, batch = self._actors["squashing"], self._critic, self._batch
        record = self._recorder.record(critic.optimizer.compute_gradients)
        supplied = {function: key for key, function in TD_TARGETS.items()}
        critic.td_path = TDPath(supplied[path], record) if path in supplied else TDPath(_recorded(path, record))
        feeds_target = critic.td_path.feeds_target

        def compute(*fields: tf.Tensor, y: tf.Tensor | None = None) -> list:
            batch = self._named(Batch(*fields))
            target = self._recorder.name("y", update.td_target(actor, critic, batch, self._gamma))
            if y is not None:
                self._recorder.name("fed_y", y)
            q = critic(batch.observations, batch.actions, training=True)
            return critic.td_gradients(q, target if y is None else y)

        with self._session.graph.as_default():
            fed = {"fed_y": "y"} if feeds_target else {}
            pairs = compute(*batch, y=self._y if feeds_target else None)
            edges, reached = self._traced(actor, fed)
            feeds = self._feeds()
            if feeds_target:
                y = self._recorder.nodes["y"]
                feeds[self._y] = self._session.run(y, feeds)
                fetches = [y, [gradient for gradient, _ in pairs]]
                milliseconds = sum(self._milliseconds(fetch, feeds) for fetch in fetches)
                compiled = None
            else:
                milliseconds = self._milliseconds([gradient for gradient, _ in pairs], feeds)
                compiled = self._milliseconds(_compiled(compute, batch), feeds)
            measured = self._measured(critic, pairs, edges, feeds)
            reference = self._td_reference(critic.td_path.bootstraps_online)
        return {
            "path": name,
            **measured,
            "finite_difference": _against_reference(measured["gradients"], *reference),
            "milliseconds": milliseconds,
            "milliseconds_compiled": compiled,
            "reached": reached,
        }

    def policy(self, name: str, path: Callable, bounding: str) -> dict[str, Any]:
        """Try a policy path with a bounding: its row, and the gradient under ``gradients``."""
        actor = self._actors[bounding]

        def compute(states: tf.Tensor) -> list:
            self._recorder.clear()
            return path(actor, self._critic, self._recorder.name("s", states))

        with self._session.graph.as_default():
            states = self._batch.observations
            pairs = compute(states)
            edges, reached = self._traced(actor, {})
            feeds = {states: self._values.observations}
            measured = self._measured(actor, pairs, edges, feeds)
            milliseconds = self._milliseconds([gradient for gradient, _ in pairs], feeds)
            compiled = self._milliseconds(_compiled(compute, [states]), feeds)
            reference = self._policy_reference(bounding)
        return {
            "path": name,
            **measured,
            "finite_difference": _against_reference(measured["gradients"], *reference),
            "milliseconds": milliseconds,
            "milliseconds_compiled": compiled,
            "reached": reached,
        }

    # -- inside ---------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make the agent's weights ready, and copy them to the networks here."""
        agent, session = self._agent, self._session
        actors = self._actors.values()
        session.run(v1.variables_initializer([v for n in [self._critic, *actors] for v in _all_variables(n)]))
        self._standardise()
        for network in (agent.actor, agent.critic):
            network.sync_target_network()
        agent.update(UPDATES)
        self._standardise()
        pairs = [(self._critic, agent.critic), *((actor, agent.actor) for actor in actors)]
        session.run(
            [
                mine.assign(theirs.read_value())
                for network, source in pairs
                for mine, theirs in zip(_all_variables(network), _all_variables(source), strict=True)
            ]
        )

    def _standardise(self) -> None:
        agent, values = self._agent, self._values
        linear = self._actors["inverting"]  # its actions are pre-activations, in [-1, 1]
        linear.set_network_params(agent.actor.get_network_params())
        _standardise(agent.actor, linear.predict(values.observations))
        _standardise(agent.critic, agent.critic.predict(values.observations, values.actions))

    def _groups(self, actor: ProbedActor) -> dict[str, list]:
        critic = self._critic
        return {
            "actor": actor.variables,
            "critic": critic.variables,
            "target_actor": actor.target_variables,
            "target_critic": critic.target_variables,
        }

    def _named(self, batch: Batch) -> Batch:
        """Name the fields of a minibatch, for a new recording."""
        self._recorder.clear()
        names = {"s": batch.observations, "a": batch.actions, "r": batch.rewards, "next_s": batch.next_observations}
        for name, tensor in names.items():
            self._recorder.name(name, tensor)
        return batch

    def _traced(self, actor: ProbedActor, fed: dict[str, str]) -> tuple[list, dict[str, int]]:
        """Return the edges of the recorded backward pass, and how many variables it reaches by group."""
        nodes, start, groups = dict(self._recorder.nodes), self._recorder.start, self._groups(actor)
        edges = trace(nodes, groups, start, fed)
        return edges, {name: len(check.leaks(start.loss, variables)) for name, variables in groups.items()}

    def _measured(self, network, pairs: list, edges: list, feeds: dict) -> dict[str, Any]:
        if [variable.name for _, variable in pairs] != [variable.name for variable in network.trainable_variables]:
            raise UsageError(f"a path must return a gradient for each trainable variable of the {network.name}")
        norms = [None if e.gradients is None else tf.linalg.global_norm(e.gradients) for e in edges]
        flowing = [norm for norm in norms if norm is not None]
        gradients, flowing = self._session.run([[gradient for gradient, _ in pairs], flowing], feeds)
        flowing = iter(flowing)
        return {
            "gradients": gradients,
            "gradient_norm": float(np.sqrt(sum(np.square(array, dtype=np.float64).sum() for array in gradients))),
            "edges": [
                {
                    "source": edge.source,
                    "destination": edge.destination,
                    "norm": None if norm is None else float(next(flowing)),
                    "stopped": edge.stopped,
                    "trained": edge.trained,
                }
                for edge, norm in zip(edges, norms, strict=True)
            ],
        }

    def _feeds(self) -> dict:
        return dict(zip(self._batch, self._values, strict=True))

    @cache  # noqa: B019 - a laboratory and its references live equally long
    def _td_reference(self, online: bool) -> tuple:
        coordinates = self._coordinates(self._critic)
        return coordinates, *self._reference.td(coordinates, online)

    @cache  # noqa: B019
    def _policy_reference(self, bounding: str) -> tuple:
        actor = self._actors[bounding]
        coordinates = self._coordinates(actor)
        return coordinates, *self._reference.policy(actor, bounding, coordinates)

    def _coordinates(self, network) -> list[tuple[int, int]]:
        """Sample coordinates of the trainable variables, evenly over the variables."""
        places = [place for place, variable in enumerate(network.variables) if variable.trainable]
        share = -(-COORDINATES // len(places))
        sizes = [(place, network.variables[place].shape.num_elements()) for place in places]
        return [
            (place, int(index))
            for place, size in sizes
            for index in self._rng.choice(size, min(size, share), replace=False)
        ]

    def _milliseconds(self, fetches, feeds: dict) -> float:
        """Return the median duration of a session call. It must fetch: what nobody fetches is optimised away."""
        call = self._session.make_callable(fetches, feed_list=list(feeds))
        durations = []
        for _ in range(2 + TIMED_CALLS):
            start = time.perf_counter()
            call(*feeds.values())
            durations.append(time.perf_counter() - start)
        return 1e3 * float(np.median(durations[2:]))


def _recorded(path: Callable, compute_gradients: Callable) -> Callable:
    own = partial(path, compute_gradients=compute_gradients)
    own.bootstraps_online = getattr(path, "bootstraps_online", False)
    return own


def _compiled(compute: Callable, inputs: Sequence[tf.Tensor]) -> list:
    function = tf.function(lambda *i: [gradient for gradient, _ in compute(*i)], jit_compile=True, autograph=False)
    return function(*inputs)


def _all_variables(network) -> list:
    return [*network.variables, *network.target_variables]


def _standardise(network, outputs: np.ndarray) -> None:
    """Scale the output layer so that ``outputs [B, n]`` get mean 0 and deviation 1 in every column."""
    *hidden, weights, bias = network.get_network_params()
    deviation = outputs.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1)
    network.set_network_params([*hidden, weights / deviation, (bias - outputs.mean(axis=0)) / deviation])


def _against_reference(gradients: list, coordinates: list, expected: np.ndarray, believable: np.ndarray) -> dict:
    """Compare at the coordinates whose central difference can be believed."""
    found = np.array([gradients[which].reshape(-1)[index] for which, index in coordinates], np.float64)
    found, expected = found[believable], expected[believable]
    largest = np.abs(found - expected).max()
    return {
        "coordinates": len(expected),
        "dropped": int((~believable).sum()),
        "max_abs": float(largest),
        "max_relative": float(largest / np.abs(expected).max()),
        "cosine": float(found @ expected / (np.linalg.norm(found) * np.linalg.norm(expected))),
    }


def _compared(rows: list[dict], labels: dict[str, str]) -> list[dict]:
    """Replace the rows' gradients by their difference from the first row's."""
    if not rows:
        return []
    gradients = {row["path"]: row.pop("gradients") for row in rows}
    reference = rows[0]["path"]
    largest = max(float(np.abs(array).max()) for array in gradients[reference])
    differences = check.compare(gradients, reference)
    return [
        {
            **labels,
            **row,
            "difference": {
                "from": reference,
                "max_abs": differences[row["path"]],
                "max_relative": differences[row["path"]] / largest,
                "equal": differences[row["path"]] <= EQUAL * largest,
            },
        }
        for row in rows
    ]
