"""Trace the gradients of a complete update, with all options of a configuration."""

from typing import Any

import gymnasium as gym
import tensorflow as tf

from ddpg.agents.ddpg import DDPG
from ddpg.algorithms.ddpg import DDPGUpdate, policy_gradient
from ddpg.config.algorithm_options import DDPGConfig
from ddpg.laboratory.flow import edge_norms, trace_flow
from ddpg.laboratory.flow_recorder import FlowRecorder
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1

RANDOM_STEPS = 500
UPDATES = 100

FIELD_NAMES = {"observations": "s", "actions": "a", "rewards": "r", "next_observations": "next_s"}

# Options of how minibatches are drawn and prepared; they do not change where gradients flow.
_ASIDE: dict[str, Any] = {
    "n_steps": 1,
    "prioritised": None,
    "priority_exponent": None,
    "hindsight": 0,
    "normalize_observations": False,
    "normalize_rewards": False,
    "parameter_noise": 0.0,
    "dataset_share": None,
    "bc_final": 1.0,
}


def trace_update(env: gym.Env, config: DDPGConfig, seed: int | None = None) -> dict[str, Any]:
    """Trace both steps of the update of ``config`` on one minibatch, after a few updates.

    With several critics the step of the first is traced; the others learn from the same y.

    Args:
        env: where the minibatch comes from, by random actions.
        config: the options; those of replay memory are ignored.
        seed: of weights, actions and minibatch; ``None``: random.

    Returns:
        ``seed``, ``batch_size``, ``hidden``, ``options`` (those of ``config`` that are not the defaults), and
        ``critic`` and ``actor``: the edges of their steps, see :class:`ddpg.laboratory.flow.Edge`, with their
        ``norm`` in place of the gradients.

    Raises:
        UsageError: if the options do not fit ``env``.
    """
    defaults = DDPGConfig().to_json()
    changed = {name: value for name, value in config.to_json().items() if value != defaults[name]}
    single = {"updates_per_call": 1, "jit": False, "precision": "float32", "learning_starts": RANDOM_STEPS}
    agent = DDPG(env, config.replace(**_ASIDE, **single), seed)
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
            batch = values.map(lambda field: v1.placeholder(field.dtype, field.shape))
            return {
                "seed": agent.seed,
                "batch_size": config.batch_size,
                "hidden": list(config.hidden),
                "options": changed,
                "critic": _critic_step(agent, update, recorder, batch, values),
                "actor": _actor_step(agent, update, recorder, batch, values),
            }
    finally:
        agent.close()


def _critic_step(agent: DDPG, update: DDPGUpdate, recorder: FlowRecorder, batch: Batch, values: Batch) -> list[dict]:
    for field, symbol in FIELD_NAMES.items():
        recorder.name(symbol, getattr(batch, field))
    y = recorder.name("y", update.target(batch))
    feeds = dict(zip(batch, values, strict=True))
    fed = {}
    if update.critic.td_path.feeds_target:
        fed["fed_y"] = "y"
        feeds[recorder.name("fed_y", v1.placeholder(tf.float32, y.shape))] = agent.session.run(y, feeds)
    update.critic_step(batch, recorder.nodes.get("fed_y", y))
    return edge_norms(agent.session, trace_flow(recorder.nodes, _weights(update), recorder.start, fed))(feeds)


def _actor_step(agent: DDPG, update: DDPGUpdate, recorder: FlowRecorder, batch: Batch, values: Batch) -> list[dict]:
    recorder.clear()
    recorder.name("s", batch.observations)
    recorder.name("a", batch.actions)
    policy_gradient(update.actor, update.critic, batch)
    edges = trace_flow(recorder.nodes, _weights(update), recorder.start)
    return edge_norms(agent.session, edges)(dict(zip(batch, values, strict=True)))


def _weights(update: DDPGUpdate) -> dict[str, list[tf.Variable]]:
    groups = {"actor": update.actor.variables, "target_actor": update.actor.target_variables}
    for number, critic in enumerate(update.critics, start=1):
        suffix = "" if number == 1 else f"_{number}"
        groups |= {f"critic{suffix}": critic.variables, f"target_critic{suffix}": critic.target_variables}
    return groups
