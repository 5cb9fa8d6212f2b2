"""What is spelt otherwise in Stable-Baselines3: its names, and what to write here instead."""

from collections.abc import Iterable, Mapping
from typing import Any

from ddpg.errors import UsageError, did_you_mean

POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")

# Of constructors and options. A name that is an option of the class at hand is never looked up here.
OPTIONS = {
    "policy": "there are no names of policies; hidden=(256, 256) are the layers, network='conv' DQN's for images",
    "policy_kwargs": "use hidden=(256, 256), activation='relu' and optimizer='adam'; networks of your own are "
    "actor_network= and critic_network=, DQN's q_network=",
    "learning_rate": "use actor_learning_rate and critic_learning_rate",
    "train_freq": "use updates_per_step, gradient updates per environment step, and updates_per_call, how many at once",
    "gradient_steps": "use updates_per_step, gradient updates per environment step, and updates_per_call, how many at "
    "once",
    "action_noise": "use noise='gaussian' or 'ornstein_uhlenbeck' with noise_scale, or noise= an object of your own",
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

CHECKPOINT_CALLBACK = {
    "name_prefix": "leave it out: checkpoints are save_path/<steps>",
    "save_vecnormalize": "leave it out: statistics of normalize_observations are in every checkpoint",
    "verbose": "list ddpg.ProgressBar() beside this one",
}


def check_policy(kind: str, env: Any) -> None:
    """Refuse the name of a policy where the environment should be.

    Raises:
        UsageError: it is one; says how the agent is made here.
    """
    if isinstance(env, str) and env in POLICIES:
        raise UsageError(
            f"{kind}({env!r}, ...): the environment comes first, and there are no names of policies; write "
            f"{kind}(env, ddpg.{kind}Config(hidden=(256, 256)), seed=0)"
        )


def check_agent(kind: str, fields: Iterable[str], given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse keywords that the constructor of an agent does not have.

    Args:
        kind: the agent's class.
        fields: its configuration's.
        given: the keywords.
        known: those that it has.

    Raises:
        UsageError: there are some; says where the first belongs, or what it is called here.
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
    """Refuse every keyword in ``given``; ``known`` are those that ``where`` has.

    Raises:
        UsageError: there is one; says what it is called here if ``table`` knows it, otherwise what comes close.
    """
    known = list(known)
    for name in given:
        hint = f": {table[name]}" if name in table else f"{did_you_mean(name, known)}; it has {', '.join(known)}"
        raise UsageError(f"{where} has no argument {name!r}{hint}")
