"""Names of options and commands in Stable-Baselines3 and other packages, and what to write here instead."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ddpg.errors import UsageError, did_you_mean

POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")

# Arguments of constructors, and options. A name that is an option of the class in question is not looked up here.
OPTIONS = {
    "policy": "policies have no names here; hidden=(256, 256) are the layers, network='conv' is for images",
    "policy_kwargs": "use hidden=(256, 256), activation='relu' and optimizer='adam'; for networks of your own "
    "actor_network= and critic_network=, for DQN q_network=",
    "learning_rate": "use actor_learning_rate and critic_learning_rate",
    "train_freq": "use updates_per_step, gradient updates per environment step, and updates_per_call, how many at once",
    "gradient_steps": "use updates_per_step, gradient updates per environment step, and updates_per_call, how many at "
    "once",
    "action_noise": "use noise='gaussian', 'ornstein_uhlenbeck', 'pink' or 'repeated' with noise_scale, or noise= an "
    "object of your own",
    "goal_selection_strategy": "leave it out: hindsight= takes goals from the rest of the episode ('future')",
    "replay_buffer_class": "use prioritised= or hindsight=",
    "replay_buffer_kwargs": "use buffer_size, prioritised and hindsight",
    "optimize_memory_usage": "leave it out: every observation is stored once, always",
    "max_grad_norm": "use max_gradient_norm",
    "exploration_fraction": "use exploration_steps, a number of environment steps",
    "exploration_initial_eps": "use exploration_initial",
    "exploration_final_eps": "use exploration_final",
    "tensorboard_log": "use learn(..., callbacks=ddpg.TensorBoardCallback(directory)); ddpg.train always writes events",
    "stats_window_size": "leave it out: means are over the last 100 episodes",
    "verbose": "use learn(..., progress_bar=True)",
    "device": "leave it out: TensorFlow takes the GPU it sees; CUDA_VISIBLE_DEVICES= hides it",
    "seed": "pass it to the agent: DDPG(env, config, seed=0)",
    "env": "pass it to the agent: DDPG(env, config)",
    "_init_setup_model": "leave it out",
}

LEARN = {
    "callback": "use callbacks=, one or a list",
    "log_interval": "use callbacks=ddpg.CSVCallback(directory, log_interval=...), an interval in environment steps",
    "tb_log_name": "use callbacks=ddpg.TensorBoardCallback(directory)",
    "reset_num_timesteps": "leave it out: steps are counted through the agent's life",
}

EVAL_CALLBACK = {
    "callback_on_new_best": "list it beside this one: callbacks=[EvalCallback(env), "
    "StopTrainingOnRewardThreshold(200.0)]",
    "callback_after_eval": "list it beside this one: callbacks=[EvalCallback(env), "
    "StopTrainingOnNoModelImprovement(5)]",
    "log_path": "list ddpg.CSVCallback(directory) beside this one; it writes evaluations.csv",
    "render": "use ddpg.record(agent, env, path)",
    "verbose": "list ddpg.ProgressBar() beside this one",
    "warn": "leave it out",
}

STOP_CALLBACK = {"verbose": "list ddpg.ProgressBar() beside this one"}

EVALUATE = {
    "n_eval_episodes": "use episodes=",
    "return_episode_rewards": "leave it out: the result has returns and lengths of each episode",
    "callback": "leave it out: the result has returns and lengths of each episode",
    "render": "use ddpg.record(agent, env, path)",
    "reward_threshold": "compare the result's summary()['mean_return'] with it",
    "warn": "leave it out",
}

CHECKPOINT_CALLBACK = {
    "name_prefix": "leave it out: checkpoints are save_path/<steps>",
    "save_vecnormalize": "leave it out: statistics of normalize_observations are in every checkpoint",
    "verbose": "list ddpg.ProgressBar() beside this one",
}


# Names of other packages' modules, for ``from ddpg import NAME``.
_IMPORTS = {
    "use DDPG(env, DDPGConfig(n_critics=2, policy_delay=2, target_policy_noise=0.2)), or --recipe td3": "TD3",
    "the algorithms here are DDPG, TD3 (a recipe) and DQN": "SAC PPO A2C TQC TRPO ARS",
    "use DDPG with the recipe plus (--recipe plus), which has CrossQ's joint pass": "CrossQ",
    "use ddpg.evaluate": "evaluate_policy",
    "use ddpg.GaussianNoise, or the option noise='gaussian' with noise_scale": "NormalActionNoise",
    "use ddpg.OrnsteinUhlenbeckNoise, or the option noise='ornstein_uhlenbeck'": "OrnsteinUhlenbeckActionNoise",
    "use ddpg.Callback": "BaseCallback",
    "use the option hindsight": "HerReplayBuffer",
    "use the option prioritised": "PrioritizedReplayBuffer PrioritisedReplayBuffer",
    "use the options normalize_observations and normalize_rewards": "VecNormalize",
    "use gymnasium.make_vec(env_id, num_envs=4), which DDPG takes as it is": "make_vec_env DummyVecEnv SubprocVecEnv",
    "use DDPGConfig(hidden=(256, 256)): policies have no names here": "MlpPolicy MultiInputPolicy",
    "use the option network='conv'": "CnnPolicy",
}
IMPORTS = {name: here for here, names in _IMPORTS.items() for name in names.split()}


def check_policy(kind: str, env: Any) -> None:
    """Refuse the name of a policy where the environment should be.

    Raises:
        UsageError: if ``env`` is the name of a policy; the message says how an agent is made here.
    """
    if isinstance(env, str) and env in POLICIES:
        raise UsageError(
            f"{kind}({env!r}, ...): the environment comes first, and policies have no names here; write "
            f"{kind}(env, ddpg.{kind}Config(hidden=(256, 256)), seed=0)"
        )


def check_agent(kind: str, fields: Iterable[str], given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse keywords that the constructor of an agent does not have.

    Args:
        kind, fields: the agent's class, and the names of its options.
        given, known: the keywords that the constructor does not have, with their values, and those that it has.

    Raises:
        UsageError: if ``given`` is not empty; the message says where the first keyword belongs, or its name here.
    """
    fields = list(fields)
    for name, value in given.items():
        if name in fields:
            raise UsageError(
                f"{kind}(..., {name}={value!r}): options are in the configuration; write "
                f"{kind}(env, ddpg.{kind}Config({name}={value!r}))"
            )
    refuse_unknown(f"{kind}(...)", given, OPTIONS, known)


def refuse_unknown(where: str, given: Iterable[str], table: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuse every keyword in ``given``; ``known`` are the keywords that ``where`` has.

    Raises:
        UsageError: if ``given`` is not empty; the message gives the first keyword's name here if ``table`` has it,
            otherwise a similar known one.
    """
    known = list(known)
    for name in given:
        hint = f": {table[name]}" if name in table else f"{did_you_mean(name, known)}; it has {', '.join(known)}"
        raise UsageError(f"{where} has no argument {name!r}{hint}")


# Keys: names here, of which the first that the command or class has is suggested. Values: names in other packages, with
# _ for -.
_RENAMED: dict[tuple[str, ...], str] = {
    (
        "total_timesteps",
        "episodes",
    ): "n_timesteps timesteps num_timesteps total_steps num_steps max_steps max_timesteps steps "
    "n train_steps training_steps num_env_steps max_env_steps nb_steps num_frames frames steps_per_epoch epochs "
    "iterations",
    ("episodes", "total_timesteps"): "n_episodes num_episodes nb_episodes max_episodes",
    ("evaluation_interval",): "eval_freq eval_frequency eval_interval eval_every evaluate_every evaluate_freq "
    "evaluation_freq evaluation_frequency eval_period save_freq save_interval save_every save_frequency "
    "checkpoint_freq checkpoint_interval checkpoint_every",
    ("evaluation_episodes", "episodes"): "eval_episodes n_eval_episodes num_eval_episodes evaluation_num_episodes "
    "n_evaluation_episodes num_evaluation_episodes eval_num_episodes",
    ("seed",): "random_seed rng_seed rand_seed",
    ("seeds",): "n_seeds num_seeds",
    ("n_envs",): "num_envs nenvs n_env num_env num_environments n_environments env_num parallel_envs nproc",
    ("workers", "n_envs"): "num_workers n_workers num_actors",
    ("vectorization",): "vec_env vec_env_type vec_env_class vec_env_cls vectorization_mode",
    ("wrap",): "wrapper env_wrapper wrappers wrapper_class",
    ("env_kwargs",): "env_args env_arguments env_params environment_kwargs make_kwargs eval_env_kwargs",
    ("root", "output"): "log_folder log_dir logdir log_path output_dir out_dir outdir save_dir save_path "
    "model_save_path folder f results_dir run_dir runs_dir output_folder exp_dir data_dir data_folder",
    ("output",): "output_file out gif video_path video_folder filename",
    ("jobs",): "n_jobs num_jobs processes",
    ("trials",): "n_trials max_trials num_trials",
    ("checkpoint",): "ckpt checkpoint_path load_checkpoint load_step load_best load_last_checkpoint "
    "load_checkpoint_step",
    ("config",): "config_file conf conf_file cfg hyperparams_file yaml_file",
    ("progress_bar",): "progress p",
    ("critic_hidden",): "qf critic_hidden_size critic_hidden_sizes critic_hidden_dim critic_hidden_dims critic_layers "
    "critic_units critic_net_arch",
    ("hidden",): "net_arch hidden_size hidden_sizes hidden_dim hidden_dims hidden_units hidden_layers layers hid "
    "num_units n_hidden layer_size mlp_units architecture network_arch units",
    ("activation",): "activation_fn activation_function act nonlinearity",
    ("norm",): "layer_norm batch_norm norm_type use_layer_norm layernorm batchnorm",
    ("normalize_observations",): "normalize norm_obs normalize_obs obs_norm normalise_observations normalize_states",
    ("normalize_rewards",): "norm_reward normalize_reward normalise_rewards reward_norm reward_scaling reward_scale",
    ("gamma",): "discount discount_factor",
    ("tau",): "soft_tau target_tau polyak_tau tau_soft",
    ("actor_learning_rate", "learning_rate"): "policy_lr actor_lr pi_lr lr_actor lr_policy policy_learning_rate",
    ("critic_learning_rate", "learning_rate"): "q_lr critic_lr qf_lr lr_critic lr_q value_lr q_learning_rate",
    ("learning_rate_schedule",): "lr_schedule lr_scheduler anneal_lr lr_decay linear_lr",
    ("batch_size",): "minibatch_size mini_batch_size minibatch batch bs",
    ("buffer_size",): "memory_size replay_size replay_buffer_size replay_capacity buffer_capacity max_buffer_size "
    "capacity buffer rb_size memory_capacity",
    ("learning_starts",): "learning_start start_timesteps start_steps starting_steps warmup warmup_steps random_steps "
    "initial_random_steps init_steps seed_steps num_seed_steps update_after random_timesteps min_replay_size "
    "train_start",
    ("updates_per_step",): "utd utd_ratio update_to_data replay_ratio gradient_steps train_freq train_frequency "
    "update_every update_freq update_frequency num_updates updates_per_env_step gradient_updates_per_step",
    ("max_gradient_norm",): "max_grad_norm grad_clip clip_grad gradient_clip gradient_clipping grad_norm "
    "grad_norm_clip clip_grad_norm max_norm",
    ("critic_l2",): "critic_weight_decay l2 l2_reg",
    ("weight_decay",): "adamw adam_w decoupled_weight_decay",
    ("optimizer",): "opt optim optimiser optimizer_class",
    ("adam_beta1",): "beta1 adam_b1 b1",
    ("critic_loss",): "loss loss_fn criterion",
    ("noise",): "action_noise noise_type noise_process ou_noise",
    ("noise_scale",): "noise_std noise_sigma exploration_noise expl_noise act_noise sigma action_noise_std "
    "exploration_std action_noise_sigma noise_stddev",
    ("noise_theta",): "ou_theta theta",
    ("parameter_noise",): "param_noise adaptive_param_noise",
    ("exploration_steps",): "exploration_fraction exploration_frac epsilon_decay eps_decay epsilon_decay_steps "
    "explore_steps decay_steps",
    ("exploration_initial",): "start_e eps_start epsilon_start epsilon eps exploration_initial_eps initial_epsilon",
    ("exploration_final",): "end_e eps_end epsilon_end exploration_final_eps final_epsilon epsilon_final min_epsilon",
    ("n_critics",): "num_critics n_q num_q n_qs twin_q ensemble_size",
    ("policy_delay",): "policy_frequency policy_freq actor_delay actor_update_freq policy_update_freq "
    "policy_update_interval",
    ("target_policy_noise",): "policy_noise target_noise smoothing_noise",
    ("target_noise_clip",): "noise_clip target_policy_noise_clip",
    ("target_update_interval",): "target_network_frequency target_update_freq target_update_frequency target_update "
    "target_freq target_network_update_freq hard_update_interval",
    ("double_q",): "double double_dqn ddqn use_double",
    ("prioritised",): "prioritized per prioritized_replay prioritized_replay_buffer use_per",
    ("priority_exponent",): "per_alpha prioritized_replay_alpha",
    ("priority_correction",): "per_beta prioritized_replay_beta beta",
    ("n_steps",): "n_step nstep multi_step n_step_returns td_steps",
    ("hindsight",): "her use_her n_sampled_goal",
    ("atoms",): "n_atoms num_atoms",
    ("bounding",): "inverting_gradients invert_gradients squash_output",
    ("threads",): "num_threads n_threads n_cpu n_cpus torch_num_threads",
    ("allow_import",): "import imports import_module allow_imports allow modules",
    ("track",): "wandb use_wandb mlflow trackio logger report_to tracker",
    ("fresh_seeds",): "n_eval_seeds",
}
RENAMED = {name: here for here, names in _RENAMED.items() for name in names.split()}

_ATTRIBUTES = {
    "use agent.replay, and observe() or remember() to add transitions": "replay_buffer buffer rb",
    "use agent.env": "get_env envs",
    "give it to load(path, env), or make the agent with it": "set_env",
    "leave it out: save() and load() keep the replay memory": "save_replay_buffer load_replay_buffer",
    "use the option normalize_observations; save() and load() keep the statistics": "get_vec_normalize_env obs_rms",
    "use update(n), which makes n gradient updates": "train train_step gradient_step optimize_model",
    "use learn(steps), or observe() and update() in a loop of your own (docs/how_to/loop.md)": "collect_rollouts "
    "store_transition",
    "use predict(observation), which returns the action and None": "select_action choose_action get_action forward",
    "use learn(steps, callbacks=ddpg.CSVCallback(directory))": "logger set_logger",
    "use agent.actor.target": "actor_target target_actor target_policy",
    "use agent.critic.target": "critic_target target_critic",
    "use agent.q": "q_net q_network",
    "use agent.q.target": "q_net_target target_network target_q_network",
    "pass seed= to the agent": "set_random_seed",
}
ATTRIBUTES = {name: advice for advice, names in _ATTRIBUTES.items() for name in names.split()}

# What else to say of a name whose value means something else here.
_MEANT = {
    "a number of environment steps": "exploration_fraction exploration_frac",
    "counted in updates, which are updates_per_step for each environment step": "target_network_frequency "
    "target_update_freq target_update_frequency target_update target_freq target_network_update_freq "
    "hard_update_interval",
    "updates for each environment step": "train_freq train_frequency update_every update_freq update_frequency",
    "of DDPG's critic='categorical' and 'distributional'; DQN has no C51": "n_atoms num_atoms",
}
MEANT = {name: meaning for meaning, names in _MEANT.items() for name in names.split()}

_ENV = "the environment has no flag, write its id: ddpg {verb} Pendulum-v1"
_RATES = "use --actor-learning-rate and --critic-learning-rate, for DQN --learning-rate"
_LEARNING_RATE = dict.fromkeys(("lr", "learning_rate", "step_size"), _RATES)
_VIDEO = "leave it out: ddpg record RUN makes a GIF or MP4 of a run, ddpg watch RUN opens a window"
_EVENTS = "leave it out: every run has TensorBoard's events: pip install tensorboard; tensorboard --logdir runs"
_DEVICE = "leave it out: TensorFlow takes the GPU that it sees; CUDA_VISIBLE_DEVICES= hides it"
_UPLOAD = "leave it out: nothing is uploaded; ddpg export RUN writes the policy to files"
_NUMBERED = "leave it out: runs are numbered, runs/ENV/N; --root DIR keeps them elsewhere"
_RESUME = "leave it out: ddpg resume RUN continues a run"
_ALGORITHM = (
    "leave it out: the action space decides, DDPG for a Box, DQN for discrete; TD3's options: --recipe td3; "
    "one of your own: --algorithm MODULE:NAME"
)
_OTHERS = "leave it out: it belongs to SAC, PPO or TQC, and this package trains DDPG and DQN"
_MODULE = "write the module before the id: ddpg {verb} gymnasium_robotics:FetchReach-v4"
_RUN = "the run has no flag, write its directory: ddpg {verb} runs/Pendulum-v1/1"
_NO_NOISE = "leave it out: policies are evaluated without exploration noise"
_OPTIONS_ARE_FLAGS = "each option is a flag, such as --batch-size 64; --config FILE.toml holds many"
_TRACKERS = "use --track wandb; its project and entity are WANDB_PROJECT and WANDB_ENTITY in the environment"

_ADVICE: dict[str, str] = {
    _ENV: "env env_id env_name environment environment_id environment_name gym_id task",
    _RUN: "run run_path exp_id model model_path model_name load_path",
    _ALGORITHM: "algo alg agent rl_algorithm",
    "use --hidden 256 256 for the layers; for images --network conv": "policy policy_type cnn",
    "use --hidden 256 256, --activation relu and --optimizer adam": "policy_kwargs network_kwargs",
    _TRACKERS: "wandb_project wandb_project_name wandb_entity wandb_tags wandb_mode wandb_group wandb_name",
    _EVENTS: "tensorboard_log tensorboard tb tb_log tensorboard_dir tb_log_name",
    _VIDEO: "capture_video record_video save_video video record render render_mode no_render capture",
    "leave it out: the newest two checkpoints and the best are kept; ddpg export RUN writes the policy": "save_model "
    "save save_policy save_agent",
    _UPLOAD: "upload_model hf_entity push_to_hub upload hub_id",
    _DEVICE: "cuda gpu device use_gpu no_cuda",
    "leave it out: two runs of one seed are the same (docs/reliability.md)": "torch_deterministic seed_everything "
    "cudnn_deterministic",
    _NO_NOISE: "deterministic stochastic eval_mode no_noise",
    "leave it out, or say less with --no-progress-bar": "verbose verbosity v quiet silent log_level debug no_progress",
    "leave it out: metrics.csv in the run directory grows by itself": "log_interval log_freq print_freq log_every "
    "logging_frequency",
    _NUMBERED: "exp_name experiment_name run_name name uuid tag experiment save_name",
    _OPTIONS_ARE_FLAGS: "hyperparams hyperparameters params hyperparam hparams kwargs",
    _MODULE: "gym_packages env_package",
    "use --wrap 'FrameStackObservation(4)'": "frame_stack n_stack num_stack",
    "use --env-kwargs max_episode_steps=N, the steps after which episodes are truncated": "time_limit "
    "max_episode_steps max_episode_length episode_length max_ep_len",
    "use --wrap 'MaxAndSkipObservation(N)', or where the environment itself skips frames --env-kwargs frame_skip=N": (
        "frame_skip"
    ),
    "leave it out: the replay memory is in every checkpoint": "save_replay_buffer save_buffer",
    _RESUME: "trained_agent i resume load_model pretrained pretrained_model load continue_training restore",
    "use ddpg tune ENV": "optimize optimize_hyperparameters tune hyperparameter_optimization",
    "leave it out: trials are proposed by Optuna's TPE sampler, and --no-prune keeps the hopeless ones": "sampler "
    "pruner n_startup_trials n_evaluations no_optim_plots optimization_log_path study_name",
    "leave it out: policies are evaluated in one environment beside the training's": "eval_env n_eval_envs "
    "num_eval_envs eval_envs",
    "leave it out: every observation is stored once, and time limits bootstrap": "optimize_memory_usage "
    "handle_timeout_termination",
    "use --prioritised proportional or --hindsight 4": "replay_buffer_class replay_buffer_kwargs",
    "use --tau, which is 1 - polyak": "polyak polyak_coef",
    _OTHERS: "alpha ent_coef target_entropy autotune clip_range gae_lambda n_epochs vf_coef use_sde sde_sample_freq "
    "n_quantiles top_quantiles_to_drop_per_net ent_coef_init update_epochs num_minibatches",
    "use --updates-per-call, gradient updates in one compiled call": "updates_per_jit_call scan_steps",
    "use --no-jit": "no_compile eager no_xla",
    "leave it out: updates are compiled; --compiler xla or native selects how": "compile xla use_jit torch_compile",
}
ADVICE = {name: text for text, names in _ADVICE.items() for name in names.split()} | _LEARNING_RATE

# Keys of TOML files that are set elsewhere.
FILES = {
    "seed": "write --seed 3 on the command line; in a study, seeds = [3] (or seeds = 3: seeds 0, 1 and 2)",
    "env": "write the environment on the command line; in a study, environments = ['Pendulum-v1']",
    **{
        name: f"it is no option of the algorithm; in a study, write {name} above its tables"
        for name in ("seeds", "final_episodes", "wrappers", "env_kwargs")
    },
    **{
        name: f"it is no option of the algorithm; write --{name.replace('_', '-')} on the command line; in a study, "
        f"{name} above its tables"
        for name in ("total_timesteps", "evaluation_interval", "evaluation_episodes", "n_envs", "vectorization")
    },
}
STUDIES = {
    **dict.fromkeys(["seed", "n_seeds", "num_seeds"], "write seeds = [3] for one seed, seeds = 3 for seeds 0, 1 and 2"),
    **dict.fromkeys(
        ["env", "envs", "env_id", "environment", "env_ids", "tasks"], "write environments = ['Pendulum-v1']"
    ),
    **dict.fromkeys(
        ["algo", "algorithm", "algos", "algorithms", "config", "configs", "configuration", "recipe", "recipes"],
        "write configurations = { td3 = 'td3', mine = { gamma = 0.9 } }",
    ),
}

_COMMANDS = {
    "evaluate": "eval test evaluate_policy validate score",
    "check-critic": "critic check_q q_values",
    "watch": "enjoy play render view show visualize visualise",
    "train": "learn run fit start ddpg td3 dqn ddpg_continuous_action td3_continuous_action",
    "tune": "optimize optimise optuna hpo sweep search",
    "study": "benchmark experiment experiments bench exp",
    "record": "video gif record_video",
    "runs": "list ls status logs",
    "resume": "continue restart load",
    "export": "convert save onnx",
    "paths": "compare gradients check path",
    "zoo": "pretrained models hub trained_agents download",
    "plot": "curve curves plot_train plots figure plot_from_file",
}
COMMANDS = {name: here for here, names in _COMMANDS.items() for name in names.split()}

_VALUES = {
    "ornstein_uhlenbeck": "ou ou_noise ornsteinuhlenbeckactionnoise ornsteinuhlenbeck ornstein_uhlenbeck_noise",
    "gaussian": "normal normalactionnoise gauss normal_noise",
    "async": "subproc subprocvecenv subprocess asyncvectorenv process",
    "sync": "dummy dummyvecenv syncvectorenv serial",
    "layer": "layer_norm layernorm ln",
    "rms": "rms_norm rmsnorm root_mean_square",
    "batch": "batch_norm batchnorm bn batchnorm1d",
    "huber": "smooth_l1 smoothl1loss huber_loss",
    "mse": "mse_loss mseloss l2",
    "proportional": "per prioritized prioritised true yes",
    "linear": "lin annealed linear_schedule",
    "linear_to_tenth": "tenth linear_decay",
    "conv": "cnn cnnpolicy naturecnn nature_cnn",
    "mlp": "mlppolicy fc",
    "inverting": "inverting_gradients invert",
    "squashing": "tanh squash squash_output",
    "leaky_relu": "leakyrelu",
    "silu": "swish",
}
_VALUE = {name: here for here, names in _VALUES.items() for name in names.split()}


def attribute_hint(name: str, known: Iterable[str]) -> str:
    """Return what an attribute of other packages' agents is called here, or the empty string.

    ``known`` are the attributes of the agent at hand: DDPG and DQN differ, and only what is there is advised.

    >>> attribute_hint("rb", ["replay"])
    'use agent.replay, and observe() or remember() to add transitions'
    """
    hint = ATTRIBUTES.get(name, "")
    advised = re.match(r"use agent\.(\w+)", hint)
    return "" if advised and advised[1] not in known else hint


def renamed(name: str, known: Iterable[str]) -> str | None:
    """Return the one of the ``known`` names that other packages call ``name``, or ``None``.

    >>> renamed("n_timesteps", ["seed", "total_timesteps"])
    'total_timesteps'
    """
    known = {*known}
    name = name.lower().replace("-", "_")
    return next((here for here in RENAMED.get(name, ()) if here in known), None)


def meaning_here(name: str) -> str:
    """Return what to add to the name that :func:`renamed` returns, if its value means something else here.

    >>> meaning_here("exploration_fraction")
    ', a number of environment steps'
    """
    meaning = MEANT.get(name.lower().replace("-", "_"))
    return f", {meaning}" if meaning else ""


def value_here(value: object, choices: Iterable[str]) -> str | None:
    """Return the choice that other packages call ``value`` (``nn.ReLU``, ``OrnsteinUhlenbeckActionNoise``)."""
    choices = {*choices}
    name = re.sub(r"[^a-z0-9_]", "", str(value).rpartition(".")[2].lower().replace("-", "_"))
    return name if name in choices else _VALUE[name] if _VALUE.get(name) in choices else None
