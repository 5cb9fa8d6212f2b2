"""Break the package on purpose, one line at a time, and see that a test turns red.

    .venv/bin/python tests/tools/mutants.py [--list] [--jobs N] [--only NAME...]

Each mutant replaces a text that occurs exactly once in a file of the source, in a copy of the tree, and runs the
tests that must then fail. A mutant that survives, a text that is not there exactly once, or named tests that do not
pass on the unbroken copy, are errors: exit status 1. ``--only`` takes names, or beginnings of them.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """One change to the source: its name, the file, what stands there, what will, and the tests that must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str


_TRAINING = "tests/runs/test_training.py::test_"
BEST = f"{_TRAINING}best_checkpoint_is_that_of_the_best_evaluation"
LATEST = f"{_TRAINING}latest_two_checkpoints_are_kept_by_number_not_by_name"
EVALUATED = f"{_TRAINING}evaluations_are_alike_and_not_of_what_was_trained_on"
RESUMED = f"{_TRAINING}resume_drops_what_the_checkpoint_has_not_seen"

_STATISTICS = "tests/runs/test_evaluation_statistics.py::test_"
SUMMARY = f"{_STATISTICS}summary_by_hand"
STARTS = f"{_STATISTICS}every_episode_has_a_start_of_its_own_and_a_seed_repeats_them_all"
GREEDY = f"{_STATISTICS}evaluation_explores_only_where_it_is_asked_to"

_RESUME = "tests/agents/test_seeds_and_resume.py::test_"
STARTING = f"{_RESUME}learning_starts_with_the_step_after_learning_starts"
RANDOM = f"{_RESUME}actions_are_random_until_learning_starts"
OWED = f"{_RESUME}fractions_of_updates_stay_owed"
SEEDED = f"{_RESUME}every_episode_is_seeded_by_the_agents_seed_and_by_the_step_at_which_it_begins"
LARGEST = f"{_RESUME}largest_reward_outlives_the_memory_of_it"
RING = f"{_RESUME}loaded_ring_overwrites_its_oldest"
DRAWS = f"{_RESUME}loaded_agent_draws_what_the_saved_one_would_have_drawn"
CUT = f"{_RESUME}a_cut_is_not_an_end_in_memory"
VALUE = f"{_RESUME}value_after_a_cut_is_learned_from"

GOING_ON = "tests/runs/test_resume.py::test_"
EXACT = f"{GOING_ON}interrupted_twice_is_never_interrupted[dqn]"

_LEAVING = "tests/runs/test_leaving.py::test_"
LEFT = f"{_LEAVING}a_signal_ends_a_run_where_it_goes_on_exactly[15]"
OWED_EVALUATION = f"{_LEAVING}a_signal_where_an_evaluation_is_due_leaves_it_owed"
FAULTY = f"{_LEAVING}what_was_learned_before_an_environment_failed_is_kept"
STATUSES = f"{_LEAVING}exit_statuses_of_environments_and_disks"
_DIRECTORY = "tests/runs/test_directory.py::test_"
_PROCESSES = "tests/agents/test_processes.py::test_"

BATCH_NORM = "tests/updates/test_batch_norm.py"
UPDATER = "tests/updates/test_updater.py"
DRIVERS = "tests/updates/test_learner.py::test_compiled_uncompiled_and_stepped_agree[None]"
NOISE = "tests/acting/test_noise_reset.py"
INTERACTION = "tests/experience/test_interaction.py"
POLICY = "tests/gradients/test_policy.py::test_scale_does_not_depend_on_the_number_of_actions"
BOUNDING = "tests/gradients/test_bounding.py::test_policy_paths_use_the_actors_bounding"
SHARED_ARRAY = f"{INTERACTION}::test_rows_survive_a_vector_that_writes_into_one_array"

_PLACE = "tests/storage/test_place.py::test_"
STAYS = f"{_PLACE}what_is_there_stays"
CWD = f"{_PLACE}the_working_directory_is_refused"

_EVALUATION = "tests/runs/test_evaluation.py::test_"
_RATES = "tests/agents/test_learning_rates.py::test_"
_OPTIONS = "tests/updates/test_options.py::test_"
_OWN_PATHS = "tests/updates/test_own_paths.py::test_"
_PROGRAM = "tests/acting/test_program.py::test_"
_VALUES = "tests/experience/test_values.py::test_"
ABANDONED = "tests/agents/test_abandoned_episodes.py"
CLIPPED = "tests/agents/test_clipped_actions.py"
_EXPORT = "tests/exports/test_export.py::test_"
_VIDEO = "tests/runs/test_video.py::test_"
_CURVES = "tests/runs/test_curves.py::test_"
CONFIGURED = f"{_TRAINING}resume_takes_the_configuration_that_a_file_cannot_hold"
FORGOTTEN = f"{_OWN_PATHS}what_a_policy_gradient_can_forget"
OVERFLOW = f"{_PROGRAM}activations_never_overflow"
LOADING = f"{_PROGRAM}weights_that_do_not_fit_change_nothing"
RETURNED = f"{INTERACTION}::test_what_an_environment_may_not_return"
NO_FLAGS = f"{_VALUES}no_flags"
ONLINE = f"{_OPTIONS}the_online_target_of_ddpg_is_bootstrapped_from_the_online_networks_and_stopped"
_TD3 = "tests/updates/test_td3.py::test_"
_TERMS = "tests/updates/test_terms.py::test_"
LEAST = f"{_TD3}the_least_of_the_critics_counts"
NUMPY = f"{_TD3}updates_equal_numpys[uncompiled]"
OPTIMIZERS = f"{_OPTIONS}every_network_has_the_optimizer"

_REPLAY = "tests/experience/test_replay.py::"
_PRIORITIES = "tests/experience/test_priorities.py::test_"
_EMPHASIS = "tests/updates/test_emphasis.py::test_"
_MEMORY = "tests/agents/test_memory_options.py::test_"
RING_MODEL = f"{_REPLAY}test_ring_is_a_list_whatever_happens"
TREE_MODEL = "tests/experience/test_sum_tree.py::test_tree_is_an_array_whatever_happens"
HINDSIGHT = "tests/agents/test_hindsight.py::test_goals_are_those_reached_later_each_as_often"
FAULTS = "tests/experience/test_faults.py::test_"
DROPPED = "tests/agents/test_dropped_transitions.py::test_dropped_transitions_are_counted_and_never_stored"
MEMORY = "tests/agents/test_memory.py::test_"
ARRAYS = "tests/storage/test_arrays.py::test_"

MUTANTS = [
    # -- memory: each observation once, n steps, priorities, statistics, hindsight
    Mutant(
        "any-next-row-is-the-successor",
        "ddpg/experience/linked.py",
        " and values[slot].tobytes() == values[row].tobytes():",
        ":",
        RING_MODEL,
    ),
    Mutant(
        "ended-episodes-go-on", "ddpg/experience/linked.py", "        if not ended:\n", "        if True:\n", RING_MODEL
    ),
    Mutant(
        "overwritten-rows-stay-open",
        "ddpg/experience/linked.py",
        "            del self._open[lane]\n",
        "            pass\n",
        RING_MODEL,
    ),
    Mutant(
        "one-slot-too-many-is-kept",
        "ddpg/experience/linked.py",
        "        self._free.append(slot)\n",
        "",
        RING_MODEL,
    ),
    Mutant(
        "returns-cross-a-reset",
        "ddpg/agents/loop.py",
        "        agent.begin_episodes()\n",
        "",
        f"{_MEMORY}nothing_leads_over_to_the_episode_of_another_learn",
    ),
    Mutant(
        "lanes-of-a-vector-ignored",
        "ddpg/agents/remembering.py",
        "terminated, truncated, transitions.lanes)",
        "terminated, truncated, [0] * len(rewards))",
        f"{_MEMORY}returns_of_a_vector_stay_in_their_environment",
    ),
    Mutant(
        "discount-of-one-step-for-all",
        "ddpg/updates/base.py",
        "(gamma if batch.discounts is None else batch.discounts)",
        "gamma",
        f"{_EMPHASIS}n_step_discounts",
    ),
    Mutant(
        "weights-left-out",
        "ddpg/gradients/weighting.py",
        "(gradient * weights, None)",
        "(gradient, None)",
        f"{_EMPHASIS}weights_multiply_each_samples_loss",
    ),
    Mutant(
        "target-is-not-weighed",
        "ddpg/updates/emphasis.py",
        "weighted(y, weights) if through else y",
        "y",
        f"{_EMPHASIS}weights_where_the_target_is_differentiated",
    ),
    Mutant(
        "lap-without-huber",
        "ddpg/gradients/weighting.py",
        "tf.maximum(tf.abs(tf.stop_gradient(target - q)), threshold)",
        "tf.ones_like(q)",
        f"{_EMPHASIS}lap_brings_the_huber_loss",
    ),
    Mutant(
        "sums-half-updated",
        "ddpg/experience/sum_tree.py",
        "sums[nodes] = sums[2 * nodes] + sums[2 * nodes + 1]",
        "sums[nodes] = sums[2 * nodes]",
        TREE_MODEL,
    ),
    Mutant(
        "new-ones-get-the-priority-of-today",
        "ddpg/experience/priorities.py",
        "max(self.largest, float(priorities.max()))",
        "float(priorities.max())",
        f"{_PRIORITIES}priorities_of_errors",
    ),
    Mutant(
        "largest-priority-not-saved",
        "ddpg/experience/priorities.py",
        "        self.largest = largest\n",
        "",
        f"{_PRIORITIES}a_restored_memory_draws_what_the_saved_one_draws",
    ),
    Mutant(
        "priorities-not-unrolled",
        "ddpg/experience/priorities.py",
        "np.roll(priorities, -unroll)",
        "priorities",
        f"{_PRIORITIES}a_restored_memory_draws_what_the_saved_one_draws",
    ),
    Mutant(
        "next-observations-not-normalised",
        "ddpg/updates/updater.py",
        "next_observations=normaliser(batch.next_observations)",
        "next_observations=batch.next_observations",
        f"{_MEMORY}acting_and_learning_see_the_same_numbers",
    ),
    Mutant(
        "returns-go-on-after-an-end",
        "ddpg/experience/normalisers.py",
        "0.0 if ended[index] else returns[index]",
        "returns[index]",
        "tests/experience/test_normalisers.py::test_scale_of_returns_by_hand",
    ),
    Mutant(
        "rewards-not-computed-anew",
        "ddpg/experience/hindsight.py",
        "batch.rewards[chosen, 0] = rewards",
        "pass",
        HINDSIGHT,
    ),
    Mutant("later-goals-are-the-last", "ddpg/experience/hindsight.py", "* seen < 1", "< 2", HINDSIGHT),
    # -- runs: the best checkpoint, the latest ones, rows, seeds of evaluations
    Mutant(
        "best-is-worst",
        "ddpg/runs/recorder.py",
        '["mean_return"] > ledger.best',
        '["mean_return"] < ledger.best',
        BEST,
    ),
    Mutant(
        "best-is-latest",
        "ddpg/runs/recorder.py",
        'if is_best := summary["mean_return"] > ledger.best:',
        "if is_best := True:",
        BEST,
    ),
    Mutant(
        "best-forgotten-on-resume",
        "ddpg/runs/ledger.py",
        'float(arrays["best"][0]) if len(arrays["best"]) else -np.inf',
        "-np.inf",
        RESUMED,
    ),
    Mutant(
        "evaluation-on-the-runs-seed",
        "ddpg/runs/recorder.py",
        'document["seed"] + 1_000_000',
        'document["seed"]',
        EVALUATED,
    ),
    Mutant(
        "evaluation-on-what-is-trained-on",
        "ddpg/runs/recorder.py",
        'document["seed"] + 1_000_000',
        'int(np.random.SeedSequence([document["seed"], 0]).generate_state(1)[0] >> 1)',
        EVALUATED,
    ),
    Mutant(
        "evaluations-unseeded",
        "ddpg/runs/recorder.py",
        "summary = evaluate(agent, self._env, self._episodes, self._seed)",
        "summary = evaluate(agent, self._env, self._episodes)",
        EVALUATED,
    ),
    Mutant(
        "newest-checkpoints-deleted",
        "ddpg/runs/recorder.py",
        "(self._run)[:-KEEP_CHECKPOINTS]",
        "(self._run)[KEEP_CHECKPOINTS:]",
        LATEST,
    ),
    Mutant(
        "checkpoints-sorted-as-text",
        "ddpg/runs/directory.py",
        "key=lambda entry: int(entry.name)",
        "key=lambda entry: entry.name",
        LATEST,
    ),
    Mutant(
        "all-checkpoints-kept", "ddpg/runs/recorder.py", "(self._run)[:-KEEP_CHECKPOINTS]", "(self._run)[:0]", LATEST
    ),
    Mutant(
        "rows-beyond-the-checkpoint-kept",
        "ddpg/runs/directory.py",
        '["timesteps"]) <= keep_until',
        '["timesteps"]) <= keep_until or True',
        RESUMED,
    ),
    Mutant(
        "row-of-the-checkpoint-lost",
        "ddpg/runs/directory.py",
        '["timesteps"]) <= keep_until',
        '["timesteps"]) < keep_until',
        RESUMED,
    ),
    Mutant("seconds-start-anew", "ddpg/runs/ledger.py", 'float(arrays["seconds"])', "0.0", RESUMED),
    # -- leaving a run: where it goes on exactly, and what is kept
    Mutant(
        "episodes-go-on-from-a-generator",
        "ddpg/agents/loop.py",
        "if transitions.episodes and interaction.single:",
        "if False:",
        LEFT,
    ),
    Mutant(
        "signals-end-episodes",
        "ddpg/runs/stopping.py",
        "if self._ended_at == agent.num_timesteps or",
        "if True or",
        LEFT,
    ),
    Mutant(
        "sums-forgotten",
        "ddpg/runs/ledger.py",
        'dict(zip(metrics, arrays["sums"].tolist(), strict=True))',
        "dict.fromkeys(metrics, 0.0)",
        f"{_LEAVING}what_an_array_of_the_ledger_may_not_be",
    ),
    Mutant("last-row-forgotten", "ddpg/runs/ledger.py", "setattr(ledger, name, int(arrays[name]))", "pass", LEFT),
    Mutant(
        "owed-evaluation-forgotten",
        "ddpg/runs/recorder.py",
        "if agent.num_timesteps >= self._due:",
        "if False:",
        OWED_EVALUATION,
    ),
    Mutant(
        "evaluated-before-it-is-saved",
        "ddpg/runs/recorder.py",
        "if self._breaks_at(now) and not agent.loop.stopping:",
        "if self._breaks_at(now):",
        OWED_EVALUATION,
    ),
    Mutant(
        "fault-saves-nothing",
        "ddpg/runs/underway.py",
        "        recorder.leave(agent)\n    except",
        "        pass\n    except",
        FAULTY,
    ),
    Mutant(
        "second-signal-ignored",
        "ddpg/runs/signals.py",
        "if self._count > 1 and not self._ends_process:",
        "if False:",
        f"{_LEAVING}a_second_signal_acts_as_usual_and_names_what_there_is",
    ),
    Mutant(
        "environments-are-bad-input",
        "ddpg/cli.py",
        " EnvironmentFault: 3,",
        "",
        STATUSES,
    ),
    Mutant("disks-are-bad-input", "ddpg/cli.py", ", FileFault: 4}", "}", STATUSES),
    Mutant(
        "rows-torn-by-a-full-disk",
        "ddpg/runs/directory.py",
        "self._file.truncate(end)",
        "pass",
        f"{_LEAVING}a_row_that_does_not_fit_leaves_none_of_it",
    ),
    Mutant(
        "config-edited-silently",
        "ddpg/runs/description.py",
        "if found.pop(_DIGEST) != _checksum(found):",
        "if found.pop(_DIGEST) is None:",
        f"{_DIRECTORY}no_change_of_a_byte_passes",
    ),
    Mutant(
        "replaced-checkpoint-swept",
        "ddpg/runs/directory.py",
        "            entry.rename(target)",
        "            place.remove(entry)",
        f"{_DIRECTORY}leftovers_are_swept_and_nothing_else",
    ),
    Mutant(
        "run-directory-seen-half-made",
        "ddpg/runs/directory.py",
        "        return _numbered(aside)\n    except",
        "        return aside\n    except",
        f"{_DIRECTORY}run_directories_that_begin_at_once_are_apart",
    ),
    Mutant(
        "forks-not-seen",
        "ddpg/agents/base.py",
        "if os.getpid() != self._process:",
        "if False:",
        f"{_PROCESSES}an_agent_is_not_used_in_a_fork",
    ),
    Mutant(
        "vectors-of-one",
        "ddpg/runs/environments.py",
        "SyncVectorEnv([functools.partial(make_env, env_id)] * n_envs)",
        "SyncVectorEnv([functools.partial(make_env, env_id)] * 3)",
        f"{GOING_ON}interrupted_twice_is_never_interrupted[vector]",
    ),
    # -- evaluation
    Mutant(
        "every-episode-alike",
        "ddpg/experience/stepping.py",
        "is None:\n            self._restart()\n        return self._observations\n\n    def step(self, action: Any)",
        "is None:\n            self._restart(0)\n        return self._observations\n\n    def step(self, action: Any)",
        STARTS,
    ),
    Mutant(
        "evaluation-ignores-its-seed",
        "ddpg/runs/evaluation.py",
        "make_stepper(env, seed, ",
        "make_stepper(env, None, ",
        STARTS,
    ),
    Mutant("ninety-percent-interval", "ddpg/runs/evaluation.py", "ppf(0.975", "ppf(0.95", SUMMARY),
    Mutant(
        "normal-interval",
        "ddpg/runs/evaluation.py",
        "stats.t.ppf(0.975, count - 1)",
        "stats.norm.ppf(0.975)",
        SUMMARY,
    ),
    Mutant(
        "deviation-of-a-population",
        "ddpg/runs/evaluation.py",
        "error = float(self.returns.std(ddof=1)",
        "error = float(self.returns.std()",
        SUMMARY,
    ),
    Mutant(
        "evaluation-explores",
        "ddpg/runs/evaluation.py",
        "deterministic=deterministic)",
        "deterministic=False)",
        GREEDY,
    ),
    Mutant(
        "evaluation-never-explores",
        "ddpg/runs/evaluation.py",
        "deterministic=deterministic)",
        "deterministic=True)",
        GREEDY,
    ),
    Mutant("ddpg-always-explores", "ddpg/agents/base.py", "if deterministic:", "if False:", f"{GREEDY}[DDPG]"),
    Mutant("dqn-always-explores", "ddpg/agents/base.py", "if deterministic:", "if False:", f"{GREEDY}[DQN]"),
    # -- batch normalisation in the update
    Mutant(
        "critic-step-in-inference-mode",
        "ddpg/updates/ddpg.py",
        "critic(batch.observations, batch.actions, training=True)",
        "critic(batch.observations, batch.actions)",
        BATCH_NORM,
    ),
    Mutant(
        "chain-rule-in-inference-mode",
        "ddpg/gradients/policy.py",
        "    actions = actor(states, training=True)\n    return",
        "    actions = actor(states)\n    return",
        BATCH_NORM,
    ),
    Mutant(
        "direct-in-inference-mode",
        "ddpg/gradients/policy.py",
        "bound_action_gradient, actor(states, training=True))",
        "bound_action_gradient, actor(states))",
        BATCH_NORM,
    ),
    Mutant(
        "surrogate-in-inference-mode",
        "ddpg/gradients/policy.py",
        "    actions = actor(states, training=True)\n    gradient",
        "    actions = actor(states)\n    gradient",
        BATCH_NORM,
    ),
    Mutant(
        "action-gradient-moves-the-statistics",
        "ddpg/networks/critic.py",
        "tf.gradients(self(states, actions), actions)",
        "tf.gradients(self(states, actions, training=True), actions)",
        BATCH_NORM,
    ),
    Mutant(
        "statistics-not-in-the-target",
        "ddpg/networks/target.py",
        "return self._average.apply(self._online)",
        "return self._average.apply([variable for variable in self._online if variable.trainable])",
        BATCH_NORM,
    ),
    # -- metrics of several calls
    Mutant("metrics-unweighted", "ddpg/updates/updater.py", "* count / n for", "/ n for", UPDATER),
    Mutant("metrics-summed", "ddpg/updates/updater.py", "* count / n for", "* count for", UPDATER),
    Mutant(
        "metrics-of-the-last-call",
        "ddpg/updates/updater.py",
        "total + metrics[name] * count / n",
        "metrics[name]",
        UPDATER,
    ),
    Mutant(
        "metrics-summed-in-a-call", "ddpg/updates/learner.py", "total / tf.cast(count, tf.float32)", "total", UPDATER
    ),
    Mutant("metrics-summed-step-by-step", "ddpg/updates/learner.py", "total / updates for", "total for", DRIVERS),
    # -- when an agent learns
    Mutant("owed-fraction-dropped", "ddpg/agents/loop.py", "self.owed_updates -= count", "self.owed_updates = 0", OWED),
    Mutant(
        "learning-starts-late",
        "ddpg/agents/loop.py",
        "agent.num_timesteps >= starts",
        "agent.num_timesteps > starts",
        STARTING,
    ),
    Mutant(
        "learning-starts-early",
        "ddpg/agents/loop.py",
        "starts = agent.config.learning_starts",
        "starts = agent.config.learning_starts - 1",
        STARTING,
    ),
    Mutant(
        "ddpg-random-too-long",
        "ddpg/acting/exploration.py",
        "step < self.random_steps",
        "step <= self.random_steps",
        f"{RANDOM}[DDPG]",
    ),
    Mutant(
        "ddpg-random-too-short",
        "ddpg/acting/exploration.py",
        "step < self.random_steps",
        "step + 1 < self.random_steps",
        f"{RANDOM}[DDPG]",
    ),
    Mutant(
        "dqn-random-too-long",
        "ddpg/acting/exploration.py",
        "step < self.random_steps",
        "step <= self.random_steps",
        f"{RANDOM}[DQN]",
    ),
    # -- seeds, and what a checkpoint brings back
    Mutant("environment-seed-constant", "ddpg/agents/loop.py", "[agent.seed, agent.num_timesteps]", "[0]", SEEDED),
    Mutant(
        "environment-seed-of-the-beginning",
        "ddpg/agents/loop.py",
        "[agent.seed, agent.num_timesteps]",
        "[agent.seed]",
        SEEDED,
    ),
    Mutant(
        "environment-seed-of-the-steps",
        "ddpg/agents/loop.py",
        "[agent.seed, agent.num_timesteps]",
        "[agent.num_timesteps]",
        SEEDED,
    ),
    Mutant(
        "largest-reward-forgotten",
        "ddpg/agents/state.py",
        'agent.largest_reward = manifest["largest_reward"]',
        "pass",
        LARGEST,
    ),
    Mutant(
        "owed-updates-forgotten",
        "ddpg/agents/state.py",
        'agent.loop.owed_updates = manifest["owed_updates"]',
        "pass",
        OWED,
    ),
    Mutant(
        "exploration-state-forgotten",
        "ddpg/agents/state.py",
        "for name, generator in agent.generators.items()",
        'for name, generator in [("replay", agent.generators["replay"])]',
        DRAWS,
    ),
    Mutant(
        "replay-state-forgotten",
        "ddpg/agents/state.py",
        "for name, generator in agent.generators.items()",
        'for name, generator in [("exploration", agent.generators["exploration"])]',
        DRAWS,
    ),
    Mutant(
        "replay-position-forgotten",
        "ddpg/experience/replay.py",
        "self._position = position % self.capacity if size == self.capacity else size",
        "self._position = size % self.capacity",
        RING,
    ),
    # -- truncation
    Mutant(
        "a-cut-is-an-end",
        "ddpg/agents/remembering.py",
        "terminated, truncated, _ = transitions",
        "terminated, truncated, _ = transitions; terminated = terminated | truncated",
        CUT,
    ),
    Mutant(
        "an-observed-cut-is-an-end",
        "ddpg/experience/transitions.py",
        'as_flag(terminated, "terminated")',
        'as_flag(terminated or truncated, "terminated")',
        VALUE,
    ),
    Mutant("an-end-has-a-value", "ddpg/updates/base.py", " * (1.0 - batch.terminated) *", " *", VALUE),
    # -- noise
    Mutant("noise-goes-on", "ddpg/acting/exploration.py", "self._noise.reset(index)", "pass", NOISE),
    Mutant("noise-reset-everywhere", "ddpg/acting/noise.py", "self._x[index] = 0.0", "self._x[:] = 0.0", NOISE),
    Mutant("noise-reset-in-the-first", "ddpg/acting/noise.py", "self._x[index] = 0.0", "self._x[0] = 0.0", NOISE),
    # -- vectors of environments
    Mutant(
        "step-not-copied",
        "ddpg/experience/vectors.py",
        "current, unread = self._read(observations)",
        "current, unread = np.asarray(observations, np.float32), set()",
        SHARED_ARRAY,
    ),
    Mutant(
        "reset-not-copied",
        "ddpg/experience/vectors.py",
        "self._observations, self._lost = self._read(observations)",
        "self._observations, self._lost = np.asarray(observations, np.float32), set()",
        SHARED_ARRAY,
    ),
    Mutant(
        "restarts-are-transitions",
        "ddpg/experience/vectors.py",
        "            self._ended = done",
        "            self._ended = np.zeros_like(done)",
        f"{INTERACTION}::test_vector_stores_what_single_environments_do",
    ),
    # -- the policy gradient's scale and bounding
    Mutant(
        "surrogate-averages-actions",
        "ddpg/gradients/policy.py",
        "tf.reduce_sum(tf.square(difference), axis=1) / 2",
        "tf.reduce_mean(tf.square(difference), axis=1)",
        POLICY,
    ),
    Mutant(
        "direct-unbounded",
        "ddpg/gradients/policy.py",
        "backward_through(actor.bound_action_gradient, actor(states, training=True))",
        "actor(states, training=True)",
        BOUNDING,
    ),
    Mutant(
        "surrogate-unbounded",
        "ddpg/gradients/policy.py",
        "gradient = actor.bound_action_gradient(critic.action_gradient(states, actions), actions)",
        "gradient = critic.action_gradient(states, actions)",
        BOUNDING,
    ),
    Mutant(
        "chain-rule-unbounded",
        "ddpg/networks/actor.py",
        "tf.stop_gradient(self.bound_action_gradient(action_gradients, actions))",
        "tf.stop_gradient(action_gradients)",
        BOUNDING,
    ),
    # -- where a checkpoint may be written
    Mutant("place-not-checked", "ddpg/storage/checkpoint.py", "place.check(path)", "pass", STAYS),
    Mutant(
        "place-not-checked-again",
        "ddpg/storage/checkpoint.py",
        "place.check(target)",
        "pass",
        f"{_PLACE}what_arrives_while_writing_stays",
    ),
    Mutant("link-followed", "ddpg/storage/place.py", "if path.is_symlink():", "if False:", STAYS),
    Mutant(
        "any-directory-replaced", "ddpg/storage/place.py", "        _check_directory(path)\n", "        pass\n", STAYS
    ),
    Mutant("foreign-files-replaced", "ddpg/storage/place.py", "    if foreign:", "    if False:", STAYS),
    Mutant("linked-files-replaced", "ddpg/storage/place.py", " or not _is_file(path / name)]", "]", STAYS),
    Mutant(
        "any-manifest-is-ours",
        "ddpg/storage/place.py",
        "if ours and all(map(_FILE.fullmatch, names))",
        "if ours",
        STAYS,
    ),
    Mutant(
        "sides-not-checked",
        "ddpg/storage/place.py",
        "for side in (aside(target), old(target)):",
        "for side in ():",
        STAYS,
    ),
    Mutant("working-directory-replaced", "ddpg/storage/place.py", "if path.samefile(os.curdir):", "if False:", CWD),
    Mutant(
        "working-directory-left",
        "ddpg/storage/place.py",
        "    if here:",
        "    if False:",
        f"{_PLACE}an_empty_working_directory_is_filled_and_stays_it",
    ),
    # -- learning rates are options
    Mutant(
        "learning-rates-restored",
        "ddpg/agents/base.py",
        " if v.name not in rates}",
        "}",
        f"{_RATES}a_changed_configuration_changes_the_rates_of_a_loaded_agent",
    ),
    Mutant(
        "learning-rates-not-reset",
        "ddpg/agents/loop.py",
        "agent.scale_learning_rates(1.0)",
        "pass",
        f"{_RATES}updates_after_a_scheduled_learn_are_at_the_configured_rates",
    ),
    Mutant(
        "schedule-starts-anew",
        "ddpg/agents/loop.py",
        "1 - agent.num_timesteps / goal",
        '1 - (agent.num_timesteps - (start := (starts := vars(self).setdefault("starts", {0: 0}))'
        ".setdefault(goal, max(starts)))) / (goal - start)",
        f"{_RATES}a_second_call_goes_on_from_where_the_agent_stands",
    ),
    # -- evaluating where an agent learns; episodes that are lost
    Mutant("evaluation-does-not-abandon", "ddpg/runs/evaluation.py", "policy.abandon_episode()", "pass", ABANDONED),
    Mutant(
        "failed-evaluation-does-not-abandon",
        "ddpg/runs/evaluation.py",
        "    finally:",
        "    except ZeroDivisionError:\n        raise\n    else:",
        f"{_EVALUATION}also_when_evaluating_fails",
    ),
    Mutant(
        "evaluation-knows-no-wrappers",
        "ddpg/runs/evaluation.py",
        "not _innermost(own).isdisjoint(_innermost(env))",
        "own is env",
        f"{_EVALUATION}evaluating_where_the_policy_learns_abandons_its_episode",
    ),
    Mutant(
        "evaluation-knows-no-vectors",
        "ddpg/runs/evaluation.py",
        'for part in getattr(inner, "envs", ())',
        "for part in ()",
        f"{_EVALUATION}the_same_for_vectors",
    ),
    Mutant("abandoned-episode-goes-on", "ddpg/agents/loop.py", "self._interaction = None", "pass", ABANDONED),
    Mutant(
        "lost-episode-goes-on",
        "ddpg/experience/stepping.py",
        "self._observations = None  # should anything below raise, the episode is lost",
        "pass",
        RETURNED,
    ),
    Mutant(
        "lost-episodes-of-a-vector-go-on",
        "ddpg/experience/vectors.py",
        "self._observations = None  # should anything below raise, the episodes are lost",
        "pass",
        f"{INTERACTION}::test_nothing_leads_over_from_what_a_vector_lost",
    ),
    Mutant("noise-of-one-for-all", "ddpg/agents/loop.py", "agent.behaviour.start(interaction.count)", "pass", NOISE),
    Mutant("ignored-actions-counted", "ddpg/agents/loop.py", "clipped[rows].sum()", "clipped.sum()", CLIPPED),
    # -- evaluation of vectors
    Mutant(
        "short-episodes-preferred",
        "ddpg/runs/evaluation.py",
        "if wanted[episode.index]:",
        "if len(finished) < episodes:",
        f"{_EVALUATION}short_episodes_are_not_preferred",
    ),
    Mutant(
        "quota-rounded-up",
        "ddpg/runs/evaluation.py",
        "(episodes + index) // stepper.count",
        "-(-episodes // stepper.count)",
        f"{_EVALUATION}each_environment_of_a_vector_contributes_its_first_episodes",
    ),
    # -- what environments return
    Mutant(
        "observation-not-copied",
        "ddpg/experience/reading.py",
        "numbers.copy() if numbers is array else numbers",
        "numbers",
        f"{INTERACTION}::test_an_environment_that_reuses_its_array",
    ),
    Mutant(
        "last-observation-is-the-next-first",
        "ddpg/experience/interaction.py",
        "step.last[0] if self.single and step.last else stepper.observations",
        "stepper.observations",
        f"{INTERACTION}::test_single",
    ),
    Mutant(
        "observation-of-any-shape",
        "ddpg/experience/reading.py",
        "if array.shape != shape:",
        "if array.size != np.prod(shape):",
        RETURNED,
    ),
    Mutant(
        "bytes-cut-off",
        "ddpg/experience/reading.py",
        "if self._bytes:",
        "if False:",
        f"{INTERACTION}::test_images_stay_what_they_are",
    ),
    Mutant(
        "nan-reward-of-a-vector",
        "ddpg/experience/vectors.py",
        "faults |= self._bad_rewards(rewards, stepped)",
        "pass",
        f"{INTERACTION}::test_what_a_vector_may_not_return",
    ),
    # -- environments that fail
    Mutant(
        "interrupts-swallowed",
        "ddpg/experience/stepping.py",
        "info = self.env.step(action)\n        except Exception",
        "info = self.env.step(action)\n        except BaseException",
        f"{FAULTS}an_interrupt_is_no_fault",
    ),
    Mutant(
        "dropped-episode-goes-on",
        "ddpg/experience/vectors.py",
        "(self._lost | set(faults)",
        "(set(faults)",
        f"{FAULTS}a_vector_drops_what_is_left_of_the_episode",
    ),
    Mutant(
        "next-episode-dropped-too",
        "ddpg/experience/vectors.py",
        "self._lost = (dropped - over) | unread",
        "self._lost = dropped | unread",
        f"{FAULTS}a_vector_drops_what_is_left_of_the_episode",
    ),
    Mutant(
        "bad-start-forgotten",
        "ddpg/experience/vectors.py",
        "self._lost = (dropped - over) | unread",
        "self._lost = dropped - over",
        f"{FAULTS}a_first_observation_that_is_bad",
    ),
    Mutant(
        "lost-vector-never-reset",
        "ddpg/experience/vectors.py",
        "if len(self._lost) < self.count:",
        "if True:",
        f"{FAULTS}a_vector_that_is_lost_altogether_is_reset",
    ),
    Mutant(
        "dropped-for-ever",
        "ddpg/experience/faults.py",
        "self._in_a_row >= PATIENCE",
        "False",
        f"{FAULTS}nothing_is_dropped_for_ever",
    ),
    Mutant(
        "faults-never-forgiven",
        "ddpg/experience/stepping.py",
        "self._tolerance.forgive()",
        "pass",
        f"{FAULTS}nothing_is_dropped_for_ever",
    ),
    Mutant(
        "processes-left-alone", "ddpg/experience/workers.py", "process.kill()", "pass", f"{FAULTS}a_reset_that_hangs"
    ),
    Mutant(
        "dropped-uncounted",
        "ddpg/agents/loop.py",
        "agent.num_dropped_transitions += 1",
        "pass",
        DROPPED,
    ),
    Mutant(
        "noise-of-a-dropped-episode",
        "ddpg/agents/loop.py",
        "+= 1\n            agent.behaviour.end_episode(index)",
        "+= 1",
        DROPPED,
    ),
    # -- what is checked before anything is made
    Mutant(
        "a-full-ring-must-fit",
        "ddpg/agents/limits.py",
        "stored = row * min(rows, capacity)",
        "stored = row * capacity",
        f"{MEMORY}what_a_run_fills_must_fit",
    ),
    Mutant(
        "minibatches-weigh-nothing",
        "ddpg/agents/limits.py",
        "2 * config.batch_size * sum(config.hidden) * count",
        "0",
        f"{MEMORY}networks_must_fit",
    ),
    Mutant(
        "container-limit-ignored",
        "ddpg/storage/machine.py",
        "min(_physical(), _of_container(), _of_process())",
        "min(_physical(), _of_process())",
        "tests/storage/test_machine.py::test_the_least_of_what_there_is",
    ),
    # -- files of arrays, piece by piece
    Mutant(
        "widest-array-last",
        "ddpg/storage/arrays.py",
        "(-item[1].itemsize, item[0])",
        "(item[1].itemsize, item[0])",
        f"{ARRAYS}arrays_begin_at_whole_words",
    ),
    Mutant(
        "pieces-of-any-size",
        "ddpg/storage/arrays.py",
        "count = max(1, CHUNK * len(array) // array.nbytes)",
        "count = len(array)",
        f"{ARRAYS}nothing_is_held_twice",
    ),
    Mutant("complex-numbers-taken", "ddpg/experience/values.py", '"biuf"', '"biufc"', f"{_VALUES}no_numbers"),
    Mutant(
        "integers-rounded",
        "ddpg/experience/values.py",
        'elif kind != "b" and array.dtype.itemsize > 2:',
        "elif False:",
        f"{_VALUES}integers_that_float32_rounds",
    ),
    Mutant(
        "integers-of-32-bits-rounded",
        "ddpg/experience/values.py",
        "array.dtype.itemsize > 2:",
        "array.dtype.itemsize > 4:",
        f"{_VALUES}integers_that_float32_rounds",
    ),
    Mutant(
        "infinite-observation",
        "ddpg/experience/values.py",
        "        check_finite(array, what)\n",
        "        pass\n",
        f"{_VALUES}beyond_float32",
    ),
    Mutant(
        "nan-is-a-flag",
        "ddpg/experience/values.py",
        "if value is True or value is False:",
        "if isinstance(value, (bool, float)):",
        NO_FLAGS,
    ),
    Mutant("floats-are-flags", "ddpg/experience/values.py", 'not in "biu" or', 'not in "biuf" or', NO_FLAGS),
    Mutant(
        "any-integer-is-a-flag",
        "ddpg/experience/values.py",
        " or not ((array == 0) | (array == 1)).all()",
        "",
        NO_FLAGS,
    ),
    # -- what is asked for is what is done
    Mutant(
        "conv-ignores-norm",
        "ddpg/updates/dqn.py",
        ", norm=config.norm, block",
        ", block",
        f"{_OPTIONS}convolutions_are_normalised",
    ),
    Mutant("ddpg-target-always-ema", "ddpg/updates/ddpg.py", "discount, self.online)", "discount, False)", ONLINE),
    Mutant("ddpg-unused-target-moves", "ddpg/updates/ddpg.py", "tf.no_op() if", "tf.no_op() if False and", ONLINE),
    Mutant(
        "dqn-target-always-ema",
        "ddpg/updates/dqn.py",
        ' or self.config.target == "online"',
        "",
        f"{_OPTIONS}the_online_target_of_dqn_is_dqn3s_without_target_q",
    ),
    Mutant(
        "optimizer-always-adam",
        "ddpg/networks/optimizers.py",
        'choose("optimizer", optimizer,',
        'choose("optimizer", "adam",',
        f"{_OPTIONS}optimizers_by_hand",
    ),
    Mutant(
        "another-momentum",
        "ddpg/networks/optimizers.py",
        "momentum=0.9",
        "momentum=0.8",
        f"{_OPTIONS}optimizers_by_hand",
    ),
    Mutant(
        "critic-ignores-optimizer",
        "ddpg/updates/ddpg.py",
        '"optimizer": with_beta1(config.optimizer, config.adam_beta1),',
        "",
        OPTIMIZERS,
    ),
    Mutant(
        "actor-ignores-optimizer",
        "ddpg/updates/ddpg.py",
        "policy_gradient=config.policy_gradient,\n        optimizer=with_beta1(config.optimizer, config.adam_beta1),",
        "policy_gradient=config.policy_gradient,",
        OPTIMIZERS,
    ),
    Mutant(
        "dqn-ignores-optimizer",
        "ddpg/updates/dqn.py",
        "optimizer=with_beta1(config.optimizer, config.adam_beta1),",
        "",
        OPTIMIZERS,
    ),
    # -- the family: what an option adds to an update
    Mutant("the-largest-critic-counts", "ddpg/updates/td3.py", "tf.minimum, values", "tf.maximum, values", LEAST),
    Mutant(
        "target-noise-not-clipped",
        "ddpg/updates/td3.py",
        "tf.clip_by_value(noise, -clip, clip) * half",
        "noise * half",
        f"{_TD3}noise_on_the_target_action_is_clipped",
    ),
    Mutant(
        "target-noise-repeats", "ddpg/updates/td3.py", "0, self._count.made())", "0, tf.zeros([], tf.int64))", NUMPY
    ),
    Mutant(
        "delayed-actor-too-early",
        "ddpg/updates/counting.py",
        "(self.made() + 1) % interval",
        "self.made() % interval",
        NUMPY,
    ),
    Mutant("targets-not-delayed", "ddpg/updates/td3.py", "move(self.config.policy_delay,", "move(1,", NUMPY),
    Mutant(
        "penalty-halved",
        "ddpg/gradients/bounding.py",
        "2 * coefficient * value",
        "coefficient * value",
        f"{_TERMS}penalty_is_the_same_on_every_policy_path",
    ),
    Mutant(
        "biases-decay",
        "ddpg/networks/value.py",
        "and variable.shape.rank > 1",
        "",
        f"{_TERMS}weights_decay_on_every_td_path",
    ),
    Mutant(
        "critics-do-not-decay",
        "ddpg/updates/ddpg.py",
        '"l2": config.critic_l2,',
        "",
        f"{_TERMS}options_reach_their_networks",
    ),
    Mutant(
        "gradients-never-clipped",
        "ddpg/networks/base.py",
        "if self.max_gradient_norm is not None:",
        "if False:",
        f"{_TERMS}a_step_is_clipped_by_the_norm_of_all_gradients",
    ),
    Mutant(
        "huber-without-its-line", "ddpg/gradients/td.py", "(2 * size - within)", "size", f"{_TERMS}hubers_loss_by_hand"
    ),
    Mutant(
        "blocks-not-normalised",
        "ddpg/networks/layers.py",
        'inner = layer_normalization(layer, scope=f"norm_{index}")',
        "inner = layer",
        "tests/networks/test_residual.py::test_forward_by_hand_and_in_numpy",
    ),
    Mutant(
        "two-hot-too-wide",
        "ddpg/networks/categorical.py",
        "(clipped - self.values) / width",
        "(clipped - self.values) / (2 * width)",
        "tests/networks/test_categorical.py::test_two_hot_and_gradient_by_hand",
    ),
    Mutant(
        "statistics-never-stay",
        "ddpg/networks/renorm.py",
        "if not v1.get_default_graph().get_collection(_STAYING):",
        "if True:",
        "tests/updates/test_crossq.py::test_renormalisation_by_hand",
    ),
    Mutant(
        "noise-schedule-ignored",
        "ddpg/acting/exploration.py",
        "return noise if self._share is None else",
        "return noise if True else",
        "tests/agents/test_schedules.py::test_noise_follows_its_share",
    ),
    # -- going on exactly --
    Mutant("episode-goes-on-after-a-checkpoint", "ddpg/runs/recorder.py", "agent.abandon_episode()", "pass", EXACT),
    Mutant(
        "recent-episodes-forgotten",
        "ddpg/runs/ledger.py",
        'zip(arrays["returns"].tolist(), arrays["lengths"].tolist(), strict=True)',
        "[]",
        EXACT,
    ),
    Mutant("events-not-cut", "ddpg/runs/recorder.py", 'step <= kept[tag.startswith("eval/")]', "True", EXACT),
    Mutant(
        "evaluations-off-their-grid",
        "ddpg/runs/recorder.py",
        "(self._ledger.evaluated // self._interval + 1) *",
        "1 + self._ledger.evaluated +",
        EXACT,
    ),
    Mutant(
        "nothing-to-resume-at-first",
        "ddpg/runs/directory.py",
        '        save(aside / "checkpoints" / "0")\n',
        "",
        f"{GOING_ON}something_to_resume_from_exists_at_once",
    ),
    Mutant(
        "missing-best-not-made",
        "ddpg/runs/recorder.py",
        "            self._keep_best(agent)\n",
        "",
        f"{GOING_ON}best_is_made_where_a_kill_came_before_it",
    ),
    Mutant(
        "torn-row-read",
        "ddpg/runs/directory.py",
        'text[: text.rfind("\\n") + 1]',
        "text",
        f"{GOING_ON}a_torn_last_row_is_left_out_and_cut",
    ),
    Mutant(
        "damaged-checkpoint-not-passed-over",
        "ddpg/runs/training.py",
        "for path in paths[:-1]:",
        "for path in []:",
        f"{GOING_ON}a_damaged_newest_checkpoint_is_passed_over",
    ),
    Mutant(
        "two-owners",
        "ddpg/runs/ownership.py",
        "lock.acquire(timeout=0)",
        "lock",
        f"{GOING_ON}a_second_owner_is_told_which_the_first_is",
    ),
    Mutant(
        "a-file-imports",
        "ddpg/runs/environments.py",
        "if module and module not in allowed:",
        "if False:",
        f"{GOING_ON}a_file_never_imports_a_module",
    ),
    Mutant(
        "memory-not-refilled",
        "ddpg/agents/loop.py",
        ">= starts and refilled",
        ">= starts",
        f"{GOING_ON}a_memory_that_was_not_saved_is_refilled_before_learning_goes_on",
    ),
    Mutant(
        "resume-ignores-config",
        "ddpg/runs/training.py",
        "agent = load_agent(path, env, config=config)",
        "agent = load_agent(path, env)",
        CONFIGURED,
    ),
    Mutant(
        "resume-does-not-note-config",
        "ddpg/runs/training.py",
        'document["config"] = agent.config.to_json()',
        "pass",
        CONFIGURED,
    ),
    Mutant("error-does-not-name-resume", "ddpg/options.py", "or ddpg.resume(run, config=...)", "", CONFIGURED),
    # -- gradient paths that forget something
    Mutant(
        "fed-residual-accepted",
        "ddpg/gradients/td.py",
        "if all(gradient is None for gradient in tf.gradients(target, variables)):",
        "if False:",
        f"{_OWN_PATHS}residual_gradient_refuses_a_fed_target",
    ),
    Mutant(
        "unbounded-accepted",
        "ddpg/updates/ddpg.py",
        "if actor.bounds_gradients and actor.times_bounded == bounded:",
        "if False:",
        FORGOTTEN,
    ),
    Mutant(
        "unclipped-accepted",
        "ddpg/networks/actor.py",
        "is not boundings.identity or self.action_gradient_clip is not None",
        "is not boundings.identity",
        f"{_OWN_PATHS}without_a_bounding_there_is_none_to_forget",
    ),
    Mutant("no-gradients-accepted", "ddpg/updates/base.py", "    if empty:", "    if False:", FORGOTTEN),
    Mutant(
        "other-variables-accepted",
        "ddpg/updates/base.py",
        "    if sorted(given) != sorted(variable.name for variable in variables):",
        "    if False:",
        FORGOTTEN,
    ),
    Mutant(
        "eager-networks-accepted",
        "ddpg/networks/base.py",
        "if tf.executing_eagerly():",
        "if False:",
        "tests/networks/test_networks.py::test_networks_are_built_in_a_graph",
    ),
    # -- acting in NumPy
    Mutant(
        "registers-shared",
        "ddpg/acting/program.py",
        "self._registers.copy()  # what",
        "self._registers  # what",
        f"{_PROGRAM}threads_get_their_own_results",
    ),
    Mutant(
        "load-in-place",
        "ddpg/acting/program.py",
        "registers = self._registers.copy()\n        for",
        "registers = self._registers\n        for",
        LOADING,
    ),
    Mutant(
        "load-in-the-midst-of-a-call",
        "ddpg/acting/program.py",
        "registers[register] = _as_row(array)",
        "self._registers[register] = registers[register] = _as_row(array)",
        f"{_PROGRAM}a_call_computes_with_weights_of_one_loading",
    ),
    Mutant(
        "sigmoid-overflows",
        "ddpg/acting/program.py",
        "np.where(x >= 0, np.float32(1), decay) / (1 + decay)",
        "1 / (1 + np.exp(-x))",
        OVERFLOW,
    ),
    Mutant(
        "selu-overflows",
        "ddpg/acting/program.py",
        "1.6732632423543772) * np.expm1(np.minimum(x, 0))",
        "1.6732632423543772) * np.expm1(x)",
        OVERFLOW,
    ),
    Mutant(
        "elu-overflows",
        "ddpg/acting/program.py",
        "np.where(x > 0, x, np.expm1(np.minimum(x, 0)))",
        "np.where(x > 0, x, np.expm1(x))",
        OVERFLOW,
    ),
    # -- exports, videos, curves
    Mutant(
        "wrong-exports-left-behind",
        "ddpg/exports/export.py",
        "if not difference <= TOLERANCE:",
        "if False:",
        f"{_EXPORT}a_wrong_file_is_not_left_behind",
    ),
    Mutant(
        "exports-not-clipped",
        "ddpg/exports/graph.py",
        "tf.maximum(tf.minimum(scaled, high.astype(np.float32)), low.astype(np.float32))",
        "scaled",
        f"{_EXPORT}files_mean_what_the_agent_does[inverting-savedmodel]",
    ),
    Mutant(
        "exports-beside-other-files-replaced",
        "ddpg/exports/place.py",
        "if not ours or foreign:",
        "if not ours:",
        f"{_EXPORT}what_is_no_export_stays",
    ),
    Mutant(
        "programs-may-grow",
        "ddpg/exports/widths.py",
        "if not 1 <= width <= LARGEST:",
        "if not 1 <= width:",
        "tests/exports/test_widths.py::test_nothing_grows_without_bound",
    ),
    Mutant(
        "edited-policies-are-read",
        "ddpg/exports/policy_file.py",
        "!= whole.policy_sha256",
        "== whole.arrays_sha256",
        f"{_EXPORT}damage_is_told",
    ),
    Mutant(
        "gifs-not-thinned",
        "ddpg/runs/pictures.py",
        "if self._count % self._stride == 0:",
        "if True:",
        f"{_VIDEO}long_and_fast_gifs_are_thinned_at_true_speed",
    ),
    Mutant(
        "start-not-recorded",
        "ddpg/runs/video.py",
        "        yield from _drawn(env)\n        over",
        "        over",
        f"{_VIDEO}gif_holds_every_picture_at_the_environments_speed",
    ),
    Mutant(
        "mean-for-interquartile-mean",
        "ddpg/runs/curves.py",
        'cut = 0.25 if measure == "iqm" else 0.0',
        "cut = 0.0",
        f"{_CURVES}seeds_of_a_configuration_are_one_curve",
    ),
    Mutant(
        "seeds-extrapolated",
        "ddpg/runs/curves.py",
        "(grid <= min(t[-1] for t in times))",
        "(grid <= max(t[-1] for t in times))",
        f"{_CURVES}seeds_are_compared_where_all_of_them_have_been",
    ),
    Mutant(
        "band-beyond-what-was-returned",
        "ddpg/runs/plotting.py",
        "np.fmin(high, most)",
        "high",
        f"{_CURVES}learning_curve_of_a_run_never_leaves_what_was_returned",
    ),
    Mutant(
        "running-runs-look-interrupted",
        "ddpg/runs/ownership.py",
        "    except filelock.Timeout:\n        return True",
        "    except filelock.Timeout:\n        return False",
        f"{_CURVES}list_of_runs",
    ),
]


def stale(mutant: Mutant, root: Path = ROOT) -> str | None:
    """Say what is wrong with a mutant's text in the source under ``root``; ``None`` where nothing is."""
    path = root / mutant.file
    if not path.exists():
        return f"{mutant.file} does not exist"
    count = path.read_text(encoding="utf-8").count(mutant.old)
    return None if count == 1 else f"{mutant.old!r} occurs {count} times in {mutant.file}"


# Importing TensorFlow takes longer than most tests: done once for each copy, and every run of tests is a fork of that.
SERVER = """
import json, os, signal, sys
import gymnasium, matplotlib.pyplot, numpy, pytest, safetensors.numpy, scipy.stats, tensorflow.compat.v1

root = os.getcwd() + os.sep
for line in sys.stdin:
    tests, timeout, output = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(int(timeout))
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        status = int(pytest.main(["-x", "-q", "-n0", "-p", "no:cacheprovider", *tests]))
        import ddpg, ddpg_envs
        for package in (ddpg, ddpg_envs):
            if not package.__file__.startswith(root):
                print("not of the copy:", package.__file__)
                status = 99
        sys.stdout.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Copy:
    """A copy of the tree, whose packages its tests import."""

    def __init__(self, folder: Path):
        self.root = folder.resolve()
        skipped = shutil.ignore_patterns("__pycache__", ".*")
        for name in ("ddpg", "envs", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=skipped)
        shutil.copytree(ROOT / "envs", folder / "ddpg_envs", ignore=skipped)  # its name where it is installed
        shutil.copy(ROOT / "pyproject.toml", folder)
        # No bytecode: a mutant and its original may have the same size and the same second of modification.
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            cwd=self.root,
            env=os.environ
            | {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
            | {"TF_CPP_MIN_LOG_LEVEL": "3", "MPLBACKEND": "agg", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        """End the process."""
        self._server.stdin.close()
        self._server.wait()

    def failure(self, tests: list[str], timeout: float) -> str | None:
        """Run ``tests`` until the first one fails; return its name, or ``None`` where all pass."""
        output = self.root / "output"
        print(json.dumps([tests, timeout, str(output)]), file=self._server.stdin, flush=True)
        status = int(self._server.stdout.readline() or 98)
        if status == 0:
            return None
        if status == -signal.SIGALRM:
            return f"(no end within {timeout:.0f} s)"
        text = output.read_text(encoding="utf-8") if output.exists() else ""
        if status != 1:
            raise SystemExit(f"pytest could not run {' '.join(tests)}, status {status}:\n{text}")
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
        return failed.group(1).rpartition("/")[2] if failed else "(unnamed)"

    def failure_under(self, mutant: Mutant, timeout: float) -> str | None:
        """Run a mutant's tests on the copy with the mutant in it; take it out again."""
        path = self.root / mutant.file
        source = path.read_text(encoding="utf-8")
        path.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
        try:
            return self.failure([mutant.tests], timeout)
        finally:
            path.write_text(source, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants that are asked for; return 1 if one survived, is stale, or has tests that do not pass."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="mutants of these names, or beginnings of names")
    parser.add_argument("--list", action="store_true", help="print the mutants and do nothing")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many at a time; default: 1")
    parser.add_argument(
        "--timeout", type=float, default=600, metavar="S", help="of the tests of one mutant; default: 600"
    )
    options = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if not options.only or m.name.startswith(tuple(options.only))]
    if not chosen:
        parser.error(f"no mutant begins with {' or '.join(options.only)}; --list names them")
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name:36} {mutant.file:34} {mutant.tests}")
        return 0
    errors = [f"{mutant.name}: {problem}" for mutant in chosen if (problem := stale(mutant))]
    chosen = [mutant for mutant in chosen if not stale(mutant)]
    if not chosen:
        raise SystemExit("\n".join(f"error: {error}" for error in errors))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [Copy(Path(folder) / str(number)) for number in range(options.jobs)]
        free = list(copies)

        def with_copy(what):
            copy = free.pop()
            start = time.perf_counter()
            try:
                return what(copy), time.perf_counter() - start
            finally:
                free.append(copy)

        tests = list(dict.fromkeys(mutant.tests for mutant in chosen))
        failed, seconds = with_copy(lambda copy: copy.failure(tests, options.timeout * len(tests)))
        if failed is not None:
            raise SystemExit(f"error: the named tests do not pass on the unbroken source: {failed}")
        print(f"{len(tests)} named tests pass unbroken, {seconds:.0f} s", flush=True)
        print(f"{'mutant':36} {'':8} {'':>5}    test that failed", flush=True)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            trials = [
                pool.submit(with_copy, lambda copy, mutant=mutant: copy.failure_under(mutant, options.timeout))
                for mutant in chosen
            ]
            for mutant, trial in zip(chosen, trials, strict=True):
                failed, seconds = trial.result()
                verdict = "SURVIVED" if failed is None else "killed"
                print(f"{mutant.name:36} {verdict:8} {seconds:5.0f} s  {failed or ''}", flush=True)
                if failed is None:
                    errors.append(f"{mutant.name} survived {mutant.tests}")
        for copy in copies:
            copy.close()
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
