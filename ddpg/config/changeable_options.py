"""Which options of a run may change when it is resumed, and why the others may not."""

import dataclasses
from collections.abc import Iterable

from ddpg.config.algorithm_options import AgentConfig
from ddpg.errors import UsageError

# Under these, what a checkpoint holds (weights, optimiser slots, replay memory, statistics, noise) means the same.
CHANGEABLE = frozenset(
    (
        *("learning_rate", "actor_learning_rate", "critic_learning_rate", "batch_size", "learning_starts"),
        *("learning_rate_schedule", "actor_learning_rate_schedule", "critic_learning_rate_schedule"),
        *("updates_per_step", "max_gradient_norm", "weight_decay", "critic_l2", "critic_loss", "clip_delta"),
        *("n_steps", "tau", "double_q", "target_critics", "target_spread"),
        *("policy_delay", "target_policy_noise", "target_noise_clip", "td_target", "policy_gradient"),
        *("action_gradient_clip", "pre_activation_penalty", "bc_alpha", "bc_final", "bc_steps"),
        *("buffer_size", "dataset_share", "hindsight", "priority_correction", "priority_correction_steps"),
        "random_shift",
        *("noise", "noise_scale", "noise_schedule", "noise_final", "noise_theta", "noise_dt", "parameter_noise"),
        *("exploration_initial", "exploration_final", "exploration_steps"),
        *("updates_per_call", "overlap", "jit", "compiler", "precision", "threads"),
        *("on_bad_transition", "step_timeout"),
    )
)
_LEARNED = "the networks have learned for its old value"
_MOMENTS = "the optimiser's saved moments are for its old value"
_AVERAGES = "it decides which averages of weights are saved"
_PRIORITIES = "the saved priorities are for its old value"
_REASONS = {
    **dict.fromkeys(("gamma", "rescale_rewards", "normalize_rewards", "normalize_observations"), _LEARNED),
    **dict.fromkeys(("optimizer", "adam_beta1"), _MOMENTS),
    **dict.fromkeys(("target", "actor_average"), _AVERAGES),
    **dict.fromkeys(("target_update_interval", "bc_only"), "it decides which counters are saved"),
    **dict.fromkeys(("prioritised", "priority_exponent"), _PRIORITIES),
    "bounding": "the actor's saved weights would give other actions",
    "action_mask": "it is part of the saved observations",
}
_OF_GROUPS = dict.fromkeys(("networks", "critics"), "the saved weights are of networks with its old value")


def check_changeable(kind: type[AgentConfig], names: Iterable[str]) -> None:
    """Refuse options that a run, whose options are of class ``kind``, cannot change when it is resumed.

    Raises:
        UsageError: if there is such an option; the message names it, and the reason.
    """
    groups = {field.name: field.metadata.get("group") for field in dataclasses.fields(kind)}
    for name in names:
        if name not in CHANGEABLE:
            why = _REASONS.get(name) or _OF_GROUPS.get(groups.get(name) or "", "it is an algorithm's own")
            raise UsageError(f"{name} cannot change when a run is resumed: {why}; train a new run with it")
