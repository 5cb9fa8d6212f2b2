"""``ddpg evaluate``, ``ddpg paths`` and ``ddpg export``."""

import contextlib
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from ddpg.answers import stdout_kept
from ddpg.commands.base import InItsEnvironment, OfEnvironment, OfRun, WithJson, find_here, load
from ddpg.errors import EnvironmentFault
from ddpg.options import option
from ddpg.quiet import quiet_tensorflow
from ddpg.storage.atomic import check_figure

if TYPE_CHECKING:
    import gymnasium as gym

WHICH = "latest, best or a number of steps"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate(WithJson, InItsEnvironment):
    """Returns of a trained policy, without exploration noise."""

    episodes: int = option(100, "how many")
    seed: int | None = option(None, "of the environment; none: from the run's")
    checkpoint: str = option("latest", WHICH, metavar="WHICH")

    def __call__(self) -> None:
        """Evaluate, and print."""
        from ddpg.experience.env_calls import own_directory

        with stdout_kept(self.json), own_directory():
            summary, text, failed = self._evaluated()
        print(json.dumps(summary) if self.json else text)
        if failed is not None:
            raise failed

    def _evaluated(self) -> tuple[dict[str, Any], str, EnvironmentFault | None]:
        """Return the summary, what is said of it, and how the environment failed when it was closed, if it did."""
        from ddpg.runs import directory
        from ddpg.runs.environments import check_import, make_env
        from ddpg.storage import checkpoint

        path = checkpoint.find(self.run, self.checkpoint)  # before TensorFlow is imported, which takes seconds
        document = directory.read_config(self.run)
        check_import(document["env_id"], self.run, self.allow_import)
        find_here(*self.allow_import)
        load("ddpg.agents.registry")
        from ddpg.agents.registry import load_agent
        from ddpg.experience import env_calls
        from ddpg.runs.evaluation import evaluate, final_seed

        env = make_env(document["env_id"], document["wrappers"])
        seed = final_seed(document["seed"]) if self.seed is None else self.seed
        failed, evaluated = None, False
        try:
            with env_calls.closing(env):
                agent = load_agent(path, env)
                result = evaluate(agent, env, self.episodes, seed, progress_bar=not self.json)
                evaluated = True
        except EnvironmentFault as error:
            if not evaluated:
                raise
            failed = error
        summary = {
            "run": self.run,
            "checkpoint": path.name,
            "env_id": document["env_id"],
            "timesteps": agent.num_timesteps,
            "seed": seed,
            **result.summary(),
        }
        return summary, f"{summary['env_id']} after {summary['timesteps']:,} steps: {result}", failed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paths(WithJson, OfEnvironment):
    """The gradient paths side by side on one minibatch, with a picture."""

    seed: int | None = option(None, "of weights, actions and minibatch; none: a random one")
    picture: str = option("paths.png", "the PNG to write", metavar="FILE")
    bounding: str | None = option(
        None,
        "the one the picture shows; none: inverting, of a recipe its own",
        ("squashing", "inverting", "zeroing"),
    )
    recipe: str | None = option(
        None, "the two steps of this recipe's update instead: those in ddpg/recipes, or a TOML file", metavar="NAME"
    )

    def __call__(self) -> None:
        """Compare them, draw, and print."""
        with stdout_kept(self.json):
            report = self._report()
        if self.json:
            print(json.dumps(report))
            return
        from ddpg.laboratory.text import paths_text, update_text

        text = paths_text(report) if self.recipe is None else update_text(report)
        print(f"{text}\nThe picture is in {report['picture']}")

    def _report(self) -> dict[str, Any]:
        check_figure(self.picture)
        find_here(*([self.env] if ":" in self.env else []))
        load("ddpg.laboratory.compare")
        from ddpg.experience.env_calls import close_quietly
        from ddpg.runs.environments import id_of, make_env

        with contextlib.ExitStack() as opened:
            env = make_env(self.env, self.wrap)
            opened.callback(close_quietly, env)
            name = id_of(env)
            return {"env_id": name, **(self._paths(env, name) if self.recipe is None else self._update(env, name))}

    def _paths(self, env: "gym.Env", name: str) -> dict[str, Any]:
        from ddpg.config import DDPGConfig
        from ddpg.experience.spaces import algorithm_for
        from ddpg.laboratory.compare import compare_paths
        from ddpg.laboratory.picture import draw_paths
        from ddpg.runs.presets import preset_config, preset_for

        # A recipe may be of networks and targets that the reference in NumPy does not have.
        usual = algorithm_for(env.action_space) != "DDPG" or preset_for(name).recipe is not None
        config = DDPGConfig() if usual else preset_config(name)
        report = compare_paths(env, config, self.seed, progress_bar=sys.stderr.isatty())
        title = f"Where gradients flow in one update of DDPG: {name}, seed {report['seed']}"
        return {**report, "picture": str(draw_paths(report, self.picture, self.bounding or "inverting", title))}

    def _update(self, env: "gym.Env", name: str) -> dict[str, Any]:
        from ddpg.config import DDPGConfig
        from ddpg.laboratory.picture import draw_update
        from ddpg.laboratory.update_flow import trace_update
        from ddpg.options import from_toml
        from ddpg.runs.recipes import read_recipe

        assert self.recipe is not None
        options = from_toml(DDPGConfig, read_recipe(self.recipe), f"recipe {self.recipe!r}: DDPGConfig")
        what = self.recipe
        if self.bounding is not None:
            options["bounding"] = self.bounding
            what += f", {self.bounding}"
        report = trace_update(env, DDPGConfig(**options), self.seed)
        title = f"Where gradients flow in one update of {what}: {name}, seed {report['seed']}"
        return {**report, "recipe": self.recipe, "picture": str(draw_update(report, self.picture, title))}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export(WithJson, OfRun):
    """The policy of a run as files: NumPy, SavedModel, TFLite, ONNX."""

    format: str = option("numpy", "of the files", metavar="{numpy,savedmodel,tflite,onnx}")
    output: str | None = option(None, "where to write; none: in the run directory", aliases=("-o",), metavar="PATH")
    checkpoint: str = option("latest", WHICH, metavar="WHICH")

    def __call__(self) -> None:
        """Write them, and tell how far they are from the agent."""
        with stdout_kept(self.json):
            self.check_checkpoint(self.checkpoint)
            load("ddpg.agents.registry")
            with quiet_tensorflow():  # the converters' notices too
                from ddpg.runs.export import export_run

                summary = export_run(self.run, self.format, self.output, self.checkpoint)
        if self.json:
            print(json.dumps(summary))
            return
        print(
            f"{summary['path']}: the policy of checkpoint {summary['checkpoint']} as {summary['format']}, "
            f"equal to the agent within {summary['difference']:.1g} of the actions' half-range"
        )
