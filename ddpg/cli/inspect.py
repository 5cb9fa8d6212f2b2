"""The commands about a run or policy, such as ``evaluate`` and ``export``, and ``paths``, ``plot`` and ``runs``."""

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from ddpg.checkpoints.atomic_write import check_figure
from ddpg.cli.command import (
    Answer,
    EnvironmentCommand,
    JSONOption,
    SavedPolicyCommand,
    WithImports,
    import_from_working_directory,
    import_with_tensorflow,
)
from ddpg.config.options import option
from ddpg.errors import UsageError, brief
from ddpg.progress import format_number
from ddpg.quiet import quiet_tensorflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    import gymnasium as gym

    from ddpg.runs.found_runs import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate(JSONOption, SavedPolicyCommand):
    """Evaluate a trained policy without exploration noise."""

    episodes: int = option(100, "number of episodes", at_least=1)
    seed: int | None = option(None, "seed of the environment; none: derived from the run's", at_least=0)

    def __call__(self) -> Answer:
        """Evaluate; a failure is the environment's, in ``close``."""
        with self.imports_allowed():
            return Answer(*self.saved_policy().evaluate(self.episodes, self.seed, progress_bar=not self.json))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckCritic(JSONOption, SavedPolicyCommand):
    """Check whether Q orders actions as simulated returns do."""

    states: int = option(20, "number of states, each of its own episode", at_least=2)
    actions: int = option(8, "number of disturbed actions for each state", at_least=1)
    disturbance: float = option(0.3, "standard deviation of the disturbances, in half-ranges of the action")
    horizon: int | None = option(
        None, "rewards in a return, before Q; none: until they hardly matter, without Q", at_least=1
    )
    seed: int | None = option(None, "seed of the environment and the disturbances; none: from the run's", at_least=0)

    def __call__(self) -> Answer:
        """Simulate."""
        from ddpg.runs.saved_policy import RunPolicy

        with self.imports_allowed():
            policy = self.saved_policy()
            if not isinstance(policy, RunPolicy):
                raise UsageError(f"{policy.name} is a policy without its critic; name a run directory")
            return Answer(
                *policy.check_critic(
                    self.states, self.actions, self.disturbance, self.horizon, self.seed, progress_bar=not self.json
                )
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paths(JSONOption, EnvironmentCommand, WithImports):
    """Compare the gradient paths on one minibatch, and draw them."""

    seed: int | None = option(None, "seed of weights, actions and minibatch; none: a random one", at_least=0)
    picture: str = option("paths.png", "the PNG to write", metavar="FILE", is_path=True)
    bounding: str | None = option(
        None,
        "bounding to draw; none: inverting, or the recipe's",
        ("squashing", "inverting", "zeroing"),
    )
    recipe: str | None = option(
        None, "draw the two steps of this recipe's update instead: one of ddpg/recipes, or a TOML file", metavar="NAME"
    )

    def __call__(self) -> Answer:
        """Compare them, and draw."""
        with self.imports_allowed():
            report = self._report()
        from ddpg.laboratory.text import paths_text, update_text

        text = paths_text(report) if self.recipe is None else update_text(report)
        return Answer(report, f"{text}\nThe picture is in {report['picture']}")

    def _report(self) -> dict[str, Any]:
        check_figure(self.picture)
        import_from_working_directory(self.env.rpartition(":")[0])
        import_with_tensorflow("ddpg.laboratory.compare")
        from ddpg.interaction.env_calls import close_quietly
        from ddpg.interaction.spaces import algorithm_for
        from ddpg.runs.env_factory import env_id_of, make_env

        env = make_env(self.source)
        name = env_id_of(env)
        try:
            if algorithm_for(env.action_space) != "DDPG":
                raise UsageError(
                    f"ddpg paths compares the gradient paths of DDPG, which acts in a Box, and {name} has the action "
                    f"space {brief(env.action_space)}; name an environment such as Pendulum-v1"
                )
            report = self._paths(env, name) if self.recipe is None else self._update(env, name)
        finally:
            close_quietly(env)
        return {"env_id": name, **report}

    def _paths(self, env: "gym.Env", name: str) -> dict[str, Any]:
        from ddpg.config.algorithm_options import DDPGConfig
        from ddpg.config.presets import preset_config, preset_for
        from ddpg.laboratory.compare import compare_paths
        from ddpg.laboratory.picture import draw_paths

        # A recipe may have networks and targets that the NumPy reference does not implement.
        config = preset_config(name) if preset_for(name).recipe is None else DDPGConfig()
        report = compare_paths(env, config, self.seed, progress_bar=sys.stderr.isatty())
        title = f"Where gradients flow in one update of DDPG: {name}, seed {report['seed']}"
        return {**report, "picture": str(draw_paths(report, self.picture, self.bounding or "inverting", title))}

    def _update(self, env: "gym.Env", name: str) -> dict[str, Any]:
        from ddpg.config.algorithm_options import DDPGConfig
        from ddpg.config.presets import ddpg_recipe
        from ddpg.laboratory.flow import trace_update
        from ddpg.laboratory.picture import draw_update

        assert self.recipe is not None
        options = ddpg_recipe(self.recipe)
        what = self.recipe
        if self.bounding is not None:
            options["bounding"] = self.bounding
            what += f", {self.bounding}"
        report = trace_update(env, DDPGConfig(**options), self.seed)
        title = f"Where gradients flow in one update of {what}: {name}, seed {report['seed']}"
        return {**report, "recipe": self.recipe, "picture": str(draw_update(report, self.picture, title))}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export(JSONOption, SavedPolicyCommand):
    """Export a run's policy: NumPy, SavedModel, TFLite, ONNX or C."""

    format: str = option("numpy", "file format", ("numpy", "savedmodel", "tflite", "onnx", "c"))
    quantize: str | None = option(None, "how format c stores weights; none: float32", ("int8",))
    name: str = option("policy", "what files, functions and, in capitals, macros of format c begin with")
    output: str | None = option(
        None,
        "where to write; none: in the run directory, or for the zoo in the working directory",
        aliases=("-o",),
        metavar="PATH",
        is_path=True,
    )

    def __call__(self) -> Answer:
        """Write the files, and return the largest difference from the agent."""
        with self.imports_allowed():
            summary = self._exported()
        from ddpg.exports.export import SAMPLES

        what = f"checkpoint {summary['checkpoint']}" if "checkpoint" in summary else self.run
        return Answer(
            summary,
            f"{summary['path']}: the policy of {what} as {summary['format']}; on {SAMPLES} observations it differs "
            f"from the agent by at most {summary['difference']:.1g} of {summary['difference_unit']}",
        )

    def _exported(self) -> dict[str, Any]:
        from ddpg.checkpoints import checkpoint
        from ddpg.exports import zoo

        if self.is_of_zoo:
            zoo.read_entry(self.run)  # refuses an unknown one before TensorFlow is imported, which takes seconds
        else:
            checkpoint.find(self.run, self.checkpoint)
        import_with_tensorflow("ddpg.agents.off_policy")
        with quiet_tensorflow():  # the converters' notices too
            from ddpg.runs.saved_policy import export_saved

            return export_saved(
                self.run,
                self.format,
                self.output,
                self.checkpoint,
                quantize=self.quantize,
                c_name=self.name,
                allow_import=self.allow_import,
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch(SavedPolicyCommand):
    """Show episodes of a trained policy in a window."""

    episodes: int = option(1, "number of episodes", at_least=1)
    seed: int | None = option(None, "seed of the environment; none: derived from the run's", at_least=0)

    def __call__(self) -> Answer | None:
        """Show them."""
        with self.imports_allowed():
            self.saved_policy().watch(self.episodes, self.seed)
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record(JSONOption, Watch):
    """Record episodes of a trained policy as a GIF or a video."""

    output: str | None = option(
        None,
        "a .gif or .mp4; none: video.gif in the run directory, or for the zoo NAME.gif in the working directory",
        aliases=("-o",),
        metavar="FILE",
        is_path=True,
    )

    def __call__(self) -> Answer:
        """Write them."""
        from ddpg.runs.video import check_video_path

        with self.imports_allowed():
            if self.output is not None:
                check_video_path(self.output)
            summary = self.saved_policy().record(self.output, self.episodes, self.seed)
        return Answer(summary, f"{summary['path']}: {summary['env_id']}, seed {summary['seed']}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot(JSONOption):
    """Plot learning curves of runs, by environment and option."""

    runs: tuple[str, ...] = option(
        (), "run directories, or directories that hold them", positional=True, metavar="RUN", is_path=True
    )
    output: str = option("runs.png", "the PNG, PDF or SVG to write", aliases=("-o",), metavar="FILE", is_path=True)
    against: str = option("steps", "the x axis", ("steps", "seconds"))
    measure: str = option("iqm", "average over seeds: interquartile mean or mean", ("iqm", "mean"))
    diagnose: bool = option(
        False, "draw one run's diagnostics instead, and print them: the state of its networks below its returns"
    )

    def __call__(self) -> Answer:
        """Draw them, and return where they end."""
        from ddpg.runs.curves import learning_curves
        from ddpg.runs.found_runs import find_runs
        from ddpg.runs.plotting import plot_curves

        if not self.runs:
            raise UsageError("no runs to plot; name run directories, or directories that hold them, such as runs")
        found = find_runs(self.runs, self.against)
        if self.diagnose:
            return self._draw_diagnostics(found)
        curves = learning_curves(found, self.against, self.measure)
        path = plot_curves(curves, self.output, self.against, self.measure)
        arrays = ("times", "centre", "low", "high")
        listed = [vars(curve) | {name: getattr(curve, name).tolist() for name in arrays} for curve in curves]
        lines = [
            f"{curve.env_id}: {curve.label}, seeds: {curve.seeds}, last return {format_number(curve.centre[-1])}\n"
            for curve in curves
        ]
        return Answer({"picture": str(path), "curves": listed}, f"{''.join(lines)}The picture is in {path}")

    def _draw_diagnostics(self, found: "Sequence[Run]") -> Answer:
        from ddpg.runs.plotting import diagnosis_text, plot_diagnostics

        for name in ("against", "measure"):
            if (value := getattr(self, name)) != self.flags()[name].default:
                raise UsageError(f"{name}={value!r} is for learning curves, not for --diagnose; leave one of them out")
        if len(found) != 1:
            raise UsageError(f"{len(found)} runs given to --diagnose, which draws one; name its directory")
        path = plot_diagnostics(found[0], self.output)
        return Answer({"picture": str(path)}, f"{diagnosis_text(found[0])}\nThe picture is in {path}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runs(JSONOption):
    """List runs: progress, returns, options."""

    root: str = option("runs", "directory that holds runs", positional=True, metavar="DIR", is_path=True)

    def __call__(self) -> Answer:
        """List them."""
        from ddpg.runs.listing import list_runs, runs_text

        rows = list_runs(self.root)
        return Answer({"runs": rows}, runs_text(rows))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Zoo(JSONOption):
    """List the package's trained policies, or show the card of one."""

    name: str | None = option(None, "a policy, such as HalfCheetah-v5; none: list all", positional=True, metavar="NAME")

    def __call__(self) -> Answer:
        """List them, or show the card."""
        import msgspec

        from ddpg.exports.zoo import read_entry
        from ddpg.runs.listing import card_text, list_zoo, zoo_text

        if self.name is None:
            rows = list_zoo()
            return Answer({"policies": rows}, zoo_text(rows))
        entry = read_entry(self.name)
        return Answer(msgspec.to_builtins(entry.card), card_text(entry))
