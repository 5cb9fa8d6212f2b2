"""Evaluate, check, record, watch and export a saved policy: that of a run, or one of the zoo, ``zoo:NAME``.

Only the agent of a run and exports import TensorFlow.
"""

import abc
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.checkpoints import checkpoint
from ddpg.config.imports import imports_allowed, references_of
from ddpg.errors import EnvironmentFault, UsageError
from ddpg.exports import policy_file, zoo
from ddpg.exports.numpy_policy import LoadedPolicy, load_policy
from ddpg.exports.zoo import Card
from ddpg.interaction import env_calls
from ddpg.progress import format_number
from ddpg.runs import run_directory
from ddpg.runs.critic_check import check_critic, checked_options
from ddpg.runs.env_factory import check_imports, make_env
from ddpg.runs.env_source import EnvSource
from ddpg.runs.episode_limits import episode_limit, episode_limit_note
from ddpg.runs.evaluation import evaluate, final_seed
from ddpg.runs.rendering_process import Renderer, open_renderer
from ddpg.runs.versions import differences, format_versions, versions_of_evaluation
from ddpg.runs.video import record_episodes, watch_episodes

Spaces = tuple[gym.Space, gym.Space]


class SavedPolicy(abc.ABC):
    """A saved policy and its environment.

    Attributes:
        name: the run directory, or ``zoo:NAME``.
        source: what its environment is made from.
        seed: the default seed of its episodes; training and its evaluations do not use it.
        video: the default file of a recording.
    """

    name: str
    source: EnvSource
    seed: int
    video: str | Path

    @abc.abstractmethod
    def load(self, spaces: Spaces) -> tuple[Any, dict[str, Any]]:
        """Return the policy, for an environment of these spaces, and its ``timesteps``; for a run also ``checkpoint``.

        Raises:
            UsageError: if it cannot be read, or is for other spaces.
        """

    def comparison(self, episodes: int, seed: int) -> tuple[dict[str, Any], str]:
        """Return what is known of these episodes, to be added to the summary and to the text of an evaluation."""
        return {}, ""

    def evaluate(
        self, episodes: int, seed: int | None = None, progress_bar: bool = False
    ) -> tuple[dict[str, Any], str, EnvironmentFault | None]:
        """Evaluate the policy without exploration noise.

        Args:
            episodes, seed, progress_bar: as for :func:`ddpg.evaluate`; by default the seed is the policy's.

        Returns:
            A dict with ``run``, ``env_id``, what :meth:`load` says, ``seed``, the fields of
            :meth:`ddpg.Evaluation.summary` and, if any were, the number of ``abandoned`` episodes; the same as one line
            of text; and the fault, if the environment failed in ``close``.

        Raises:
            UsageError: as :meth:`load` and :func:`~ddpg.runs.env_factory.make_env`.
            EnvironmentFault: as :func:`~ddpg.runs.evaluation.evaluate`.
        """
        seed = self.seed if seed is None else seed
        with env_calls.own_directory():
            env = make_env(self.source)
            try:
                policy, about = self.load((env.observation_space, env.action_space))
                result = evaluate(policy, env, episodes, seed, progress_bar=progress_bar)
            except BaseException:
                env_calls.close_quietly(env)
                raise
            failed = None
            try:
                env_calls.close(env)
            except EnvironmentFault as error:
                failed = error
        known, beside = self.comparison(episodes, seed)
        abandoned = {"abandoned": result.abandoned} if result.abandoned else {}
        found = {**result.summary(), **abandoned, **known}
        summary = {"run": self.name, "env_id": self.source.env_id, **about, "seed": seed, **found}
        return summary, f"{self.source.env_id} after {about['timesteps']:,} steps: {result}{beside}", failed

    def record(self, output: str | Path | None = None, episodes: int = 1, seed: int | None = None) -> dict[str, Any]:
        """Record episodes.

        Args:
            output: a ``.gif`` or ``.mp4``; by default :attr:`video`.
            episodes, seed: as for :meth:`evaluate`.

        Returns:
            ``path``, ``env_id``, what :meth:`load` says, ``seed`` and ``episodes``.

        Raises:
            UsageError: as :meth:`load` and :func:`ddpg.record`.
        """
        seed = self.seed if seed is None else seed
        with self._loaded() as (policy, renderer, about):
            path = record_episodes(policy, renderer, output or self.video, episodes, seed)
        return {"path": str(path), "env_id": self.source.env_id, **about, "seed": seed, "episodes": episodes}

    def watch(self, episodes: int = 1, seed: int | None = None) -> None:
        """Show episodes in a window; arguments and errors as those of :meth:`record`."""
        with self._loaded() as (policy, renderer, about):
            title = f"{self.source.env_id} after {about['timesteps']:,} steps"
            watch_episodes(policy, renderer, episodes, self.seed if seed is None else seed, title)

    @contextlib.contextmanager
    def _loaded(self) -> Iterator[tuple[Any, Renderer, dict[str, Any]]]:
        with env_calls.own_directory(), open_renderer(self.source) as renderer:
            policy, about = self.load(renderer.spaces)
            yield policy, renderer, about


class RunPolicy(SavedPolicy):
    """The policy of a run's checkpoint.

    Args:
        run: a run directory.
        which: ``"latest"``, ``"best"`` or a number of timesteps.
        allow_import: modules that the run may import, for an environment, an algorithm or an option that its
            ``config.json`` names as ``module:Name``.

    Raises:
        UsageError: if there is no such run or checkpoint, or a module is not allowed.
    """

    def __init__(self, run: str | Path, which: str = "latest", allow_import: Sequence[str] = ()):
        checkpoint.find(run, which)
        document = run_directory.read_config(run)
        check_imports(references_of(document), run, allow_import)
        self.name, self.video = str(run), Path(run) / "video.gif"
        self.source = EnvSource.of_run(document)
        self.seed = final_seed(document["seed"])
        self._which, self._allow_import = which, allow_import
        self._episode_limit = document["episode_limit"]

    def load(self, spaces: Spaces) -> tuple[Any, dict[str, Any]]:
        """See :meth:`SavedPolicy.load`."""
        from ddpg.agents.off_policy import load_agent

        path = checkpoint.find(self.name, self._which)  # again: a run in training keeps only its newest checkpoints
        with imports_allowed(self._allow_import):
            agent = load_agent(path, spaces)
        return agent, {"checkpoint": path.name, "timesteps": agent.num_timesteps}

    def check_critic(
        self,
        states: int,
        actions: int,
        disturbance: float,
        horizon: int | None = None,
        seed: int | None = None,
        progress_bar: bool = False,
    ) -> tuple[dict[str, Any], str]:
        """Compare the critic with simulated returns.

        Args:
            states, actions, disturbance, horizon, progress_bar: as for :func:`ddpg.check_critic`.
            seed: of states and episodes; by default the policy's.

        Returns:
            ``run``, ``env_id``, what :meth:`load` says, ``seed`` and :meth:`CriticCheck.summary`; the same as text.

        Raises:
            UsageError: as :meth:`load`, :func:`~ddpg.runs.env_factory.make_env` and :func:`ddpg.check_critic`.
            EnvironmentFault: if the environment failed.
        """
        seed = self.seed if seed is None else seed
        checked_options(states, actions, disturbance, horizon, seed)  # before anything is loaded
        with env_calls.own_directory(), env_calls.closing(make_env(self.source)) as env:
            agent, about = self.load((env.observation_space, env.action_space))
            found = check_critic(agent, env, states, actions, disturbance, horizon, seed, progress_bar)
        summary = {"run": self.name, "env_id": self.source.env_id, **about, "seed": seed, **found.summary()}
        return summary, f"{self.source.env_id} after {about['timesteps']:,} steps\n{found}"

    def comparison(self, episodes: int, seed: int) -> tuple[dict[str, Any], str]:
        """Return no field, and a warning if the environment's time limit is not the run's."""
        note = episode_limit_note(episode_limit(self.source), self._episode_limit)
        return {}, f"; {note}" if note else ""


class ZooPolicy(SavedPolicy):
    """A policy of the zoo, ``zoo:NAME``, whose default seed is that of its card.

    Raises:
        UsageError: if there is no such policy.
    """

    def __init__(self, name: str):
        self._entry = zoo.read_entry(name)
        card = self._entry.card
        self.name, self.video = f"{zoo.PREFIX}{self._entry.name}", f"{self._entry.name}.gif"
        self.source, self.seed = EnvSource(card.env_id), card.evaluation.seed

    def load(self, spaces: Spaces) -> tuple[LoadedPolicy, dict[str, Any]]:
        """See :meth:`SavedPolicy.load`."""
        policy, card = load_policy(self.name), self._entry.card
        for what, here in zip(("observation_space", "action_space"), spaces, strict=True):
            own = getattr(policy, what)
            if own.shape != here.shape or type(own) is not type(here):
                raise UsageError(
                    f"{card.env_id} has {what} {here} here, and {self.name} is for {own}: it was trained with "
                    f"{format_versions(card.evaluation.versions)}"
                )
        return policy, {"timesteps": card.timesteps}

    def comparison(self, episodes: int, seed: int) -> tuple[dict[str, Any], str]:
        """Return ``card_mean_return``: the card's mean over the same episodes, ``None`` if it does not have them.

        With the card's seed, and if :func:`differences_here` is empty, the returns equal the card's first ``episodes``
        returns.
        """
        card = self._entry.card
        if seed != card.evaluation.seed or episodes > len(card.evaluation.returns):
            return {"card_mean_return": None}, ""
        mean, others = float(np.mean(card.evaluation.returns[:episodes])), differences_here(card)
        return {"card_mean_return": mean}, f"; its card: {format_number(mean)}" + f" ({others})" * bool(others)


def export_saved(
    name: str | Path,
    format: str = "numpy",
    output: str | Path | None = None,
    which: str = "latest",
    *,
    quantize: str | None = None,
    c_name: str = "policy",
    allow_import: Sequence[str] = (),
) -> dict[str, Any]:
    """Write a saved policy as files: :meth:`ddpg.DDPG.export`. Imports TensorFlow.

    Args:
        name: a run directory, a checkpoint, or ``zoo:NAME``.
        format: one of :data:`ddpg.exports.export.FORMATS`.
        output: the path to write; by default the format's name in :data:`ddpg.exports.export.NAMES`, in the run
            directory, or for the zoo after NAME in the working directory.
        which, allow_import: as for :class:`RunPolicy`.
        quantize: ``"int8"``: with format ``"c"``, store the weights as 8-bit integers.
        c_name: with format ``"c"``, what files, functions and macros begin with.

    Returns:
        ``path``, ``format``, ``timesteps``, of a run ``checkpoint``, and ``difference``: the largest difference between
        the outputs of the exported policy and of the saved one, in units of ``difference_unit``: half-ranges of the
        actions, or DQN's largest value.

    Raises:
        UsageError: if there is no such run, checkpoint or policy, or as :meth:`ddpg.DDPG.export`.
    """
    from ddpg.agents.off_policy import load_agent
    from ddpg.exports.export import NAMES, check_options, export, unit_of_difference
    from ddpg.exports.policy_graph import ActingPolicy, acting_policy

    check_options(format, quantize, c_name)
    about: dict[str, Any]
    with contextlib.ExitStack() as opened:
        if zoo.is_zoo(name):
            entry = zoo.read_entry(str(name))
            acting = opened.enter_context(acting_policy(*policy_file.read(entry.folder)))
            about = {"timesteps": entry.card.timesteps}
            usual = Path(f"{entry.name}_{NAMES[format]}")
        else:
            found = checkpoint.find(name, which)
            if output is None and found == Path(name):
                raise UsageError(f"{name} is a checkpoint, where nothing else belongs; say where to write: -o PATH")
            with imports_allowed(allow_import):
                agent = load_agent(found)
            acting = ActingPolicy.of(agent)
            about = {"checkpoint": found.name, "timesteps": agent.num_timesteps}
            usual = Path(name) / NAMES[format]
        path = usual if output is None else output
        difference = export(path, format, acting, quantize, c_name)
    return {
        "path": str(path),
        "format": format,
        **about,
        "difference": difference,
        "difference_unit": unit_of_difference(acting.actions.space),
    }


def differences_here(card: Card) -> str:
    """Return the differences between this machine and the card's that can change returns; empty if there are none."""
    before = {name: version for name, version in card.evaluation.versions.items() if name not in ("python", "numpy")}
    return differences(before, versions_of_evaluation())
