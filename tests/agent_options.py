"""Options and gradient paths for tests that combine all of them."""

from ddpg.config.algorithm_options import DQNConfig
from ddpg.config.presets import PRESETS

# Name, value, and other options that it needs.
OPTIONS = [
    ("n_critics", 2, {}),
    ("target_critics", "mean", {"n_critics": 2}),
    ("policy_delay", 2, {}),
    ("target_policy_noise", 0.2, {}),
    ("target_noise_clip", 0.1, {"target_policy_noise": 0.5}),
    ("n_steps", 3, {}),
    ("prioritised", "proportional", {}),
    ("prioritised", "lap", {}),
    ("normalize_observations", True, {}),
    ("normalize_rewards", True, {}),
    ("pre_activation_penalty", 0.1, {}),
    ("max_gradient_norm", 0.01, {}),
    ("critic_l2", 0.1, {}),
    ("weight_decay", 0.1, {}),
    ("bc_alpha", 2.5, {}),
    ("bc_only", True, {}),
    ("bc_final", 0.5, {"bc_alpha": 2.5, "bc_steps": 10}),
    ("weight_projection", True, {}),
    ("affine_projection", True, {"norm": "layer"}),
    ("block", "residual", {}),
    ("critic_hidden", (5, 3), {}),
    ("norm", "layer", {}),
    ("norm", "rms", {}),
    ("parameter_noise", 0.2, {}),
    ("noise_schedule", "linear", {"exploration_steps": 60}),
    ("learning_rate_schedule", "linear", {}),
    ("learning_rate_schedule", "linear_to_tenth", {}),
    ("actor_learning_rate_schedule", "linear", {}),
    ("updates_per_step", 2.0, {}),
    ("gamma", 0.9, {}),
    ("target", "online", {}),
    ("target", "none", {"critic_norm": "renorm"}),
    ("critic", "categorical", {}),
    ("critic", "distributional", {}),
    ("critic_loss", "huber", {}),
    ("clip_delta", 0.01, {"td_target": "output_delta"}),
]
PATHS = [
    *(("td_target", path) for path in ("stop_gradient", "placeholder", "output_delta", "residual_gradient")),
    *(("bounding", way) for way in ("inverting", "zeroing")),
    *(("policy_gradient", path) for path in ("direct", "surrogate")),
]
DQN_PRESETS = tuple(env_id for env_id, preset in PRESETS.items() if preset.kind is DQNConfig)

# An agent with few weights, not compiled; SGD has no slots, which are a third of the graph that Adam needs.
TINY = {"hidden": (4,), "batch_size": 4, "optimizer": "sgd", "jit": False}
# Makes no updates, whose graph takes longer to build than the networks.
IDLE = TINY | {"learning_starts": 10_000}

# For tests of the policy alone: without the optimiser's slots and target networks, half as much is built.
WITHOUT_SLOTS_AND_TARGETS = {"optimizer": "sgd", "target": "online"}
SMALL_UPDATE = {"critic_hidden": (4,), "critic_norm": None, **WITHOUT_SLOTS_AND_TARGETS}
