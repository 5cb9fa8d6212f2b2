"""The ``ddpg`` command."""

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Before NumPy reads it: our products are small, and on a busy machine a second BLAS thread that waits for its core
# makes `ddpg paths` five times as slow. TensorFlow's threads are others.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from ddpg.config import AgentConfig, DDPGConfig, DQNConfig, field_type, read_toml
from ddpg.errors import EnvironmentFault, UsageError

# TensorFlow is imported inside the commands: `ddpg --help` answers at once.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status: 0; 1 training diverged; 2 bad input; 3 the environment failed."""
    options = _parser().parse_args(arguments)
    try:
        options.run_command(options)
    except EnvironmentFault as error:
        print(f"ddpg: error: {_one_line(error)}", file=sys.stderr)
        return 3
    except UsageError as error:
        print(f"ddpg: error: {_one_line(error)}", file=sys.stderr)
        return 2
    except FloatingPointError as error:
        print(f"ddpg: error: {_one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ddpg: interrupted", file=sys.stderr)
        return 130
    return 0


def _train(options: argparse.Namespace) -> None:
    values = read_toml(options.config) if options.config else {}
    values |= {name: getattr(options, name) for name in _flags() if getattr(options, name) is not _UNSET}
    with _quiet_tensorflow():
        from ddpg.agents.registry import agent_for
        from ddpg.runs import training
        from ddpg.runs.environments import id_of, make_env
        from ddpg.runs.presets import preset_config
    env = make_env(options.env)
    name = id_of(env)
    config = preset_config(name, agent_for(env.action_space).config_class, **values)
    env.close()
    run = training.train(
        options.env,
        config,
        seed=options.seed,
        total_timesteps=options.total_timesteps,
        root=options.root,
        evaluation_interval=options.evaluation_interval,
        evaluation_episodes=options.evaluation_episodes,
        progress_bar=not options.no_progress_bar,
    )
    _report(run, options.json)


def _resume(options: argparse.Namespace) -> None:
    with _quiet_tensorflow():
        from ddpg.runs import training
    run = training.resume(
        options.run,
        total_timesteps=options.total_timesteps,
        which=options.checkpoint,
        allow_import=options.allow_import,
        progress_bar=not options.no_progress_bar,
    )
    _report(run, options.json)


def _evaluate(options: argparse.Namespace) -> None:
    with _quiet_tensorflow():
        from ddpg.agents.registry import load_agent
        from ddpg.runs import directory
        from ddpg.runs.environments import check_import, make_env
        from ddpg.runs.evaluation import evaluate
        from ddpg.storage import checkpoint
    path = checkpoint.find(options.run, options.checkpoint)
    document = directory.read_config(options.run)
    check_import(document["env_id"], options.run, options.allow_import)
    env = make_env(document["env_id"])
    agent = load_agent(path, env)
    seed = document["seed"] + 2_000_000 if options.seed is None else options.seed
    result = evaluate(agent, env, options.episodes, seed, progress_bar=not options.json)
    env.close()
    summary = {
        "run": str(options.run),
        "checkpoint": path.name,
        "env_id": document["env_id"],
        "timesteps": agent.num_timesteps,
        "seed": seed,
        **result.summary(),
    }
    if options.json:
        print(json.dumps(summary))
    else:
        print(
            f"{summary['env_id']} after {summary['timesteps']:,} steps: mean return {summary['mean_return']:.1f} "
            f"(95 % CI {summary['ci95_low']:.1f} to {summary['ci95_high']:.1f}, "
            f"{summary['episodes']} episodes of {summary['mean_length']:.0f} steps)"
        )


def _paths(options: argparse.Namespace) -> None:
    with _quiet_tensorflow():
        from ddpg.laboratory.compare import compare_paths
        from ddpg.laboratory.picture import draw_paths
        from ddpg.laboratory.text import paths_text
        from ddpg.runs.environments import id_of, make_env
        from ddpg.runs.presets import preset_config
    env = make_env(options.env)
    name = id_of(env)
    with _quiet_tensorflow():
        report = {"env_id": name, **compare_paths(env, preset_config(name), options.seed)}
    env.close()
    title = f"Where gradients flow in one update of DDPG: {name}, seed {report['seed']}"
    report["picture"] = str(draw_paths(report, options.picture, options.bounding, title))
    if options.json:
        print(json.dumps(report))
        return
    print(f"{paths_text(report)}\nThe picture is in {report['picture']}")


def _report(run: Path, as_json: bool) -> None:
    from ddpg.runs import directory

    document = directory.read_config(run)
    last = {name: directory.read_table(run / f"{name}.csv")[-1] for name in ("metrics", "evaluations")}
    timesteps = int(last["evaluations"]["timesteps"])
    summary = {
        "run": str(run),
        "env_id": document["env_id"],
        "seed": document["seed"],
        "timesteps": timesteps,
        "finished": timesteps >= document["total_timesteps"],
        "steps_per_second": float(last["metrics"]["fps"]),
        "training_seconds": float(last["metrics"]["seconds"]),
        "evaluation_mean_return": float(last["evaluations"]["mean_return"]),
        "evaluation_episodes": int(last["evaluations"]["episodes"]),
    }
    if as_json:
        print(json.dumps(summary))
        return
    if not summary["finished"]:
        print(f"Stopped at {timesteps:,} of {document['total_timesteps']:,} steps; go on with: ddpg resume {run}")
    print(
        f"{summary['env_id']}: evaluation return {summary['evaluation_mean_return']:.1f} after {timesteps:,} steps, "
        f"{summary['steps_per_second']:,.0f} steps/s, {summary['training_seconds']:.1f} s of training\n"
        f"Everything is in {run}; evaluate it with: ddpg evaluate {run}"
    )


# -- parsing ------------------------------------------------------------------------------------------

_UNSET = object()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ddpg", description="DDPG, and DQN for discrete actions, with pluggable gradient paths."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    train = commands.add_parser("train", help="train in an environment; leaves runs/ENV/N/")
    train.add_argument("env", metavar="ENV", help="a gymnasium id such as Pendulum-v1, or module:Id")
    train.add_argument("--seed", type=int, help="of weights, exploration and environment (default: random)")
    train.add_argument("--total-timesteps", type=int, metavar="N", help="environment steps (default: the preset's)")
    train.add_argument("--config", metavar="FILE", help="a TOML file with the options below; flags go before it")
    train.add_argument("--root", default="runs", metavar="DIR", help="where runs are kept (default: runs)")
    train.add_argument("--evaluation-interval", type=int, metavar="N", help="steps between evaluations and checkpoints")
    train.add_argument(
        "--evaluation-episodes", type=int, default=10, metavar="N", help="episodes of each (default: 10)"
    )
    _add_output_flags(train)
    _add_config_flags(train)
    train.set_defaults(run_command=_train)

    resume = commands.add_parser("resume", help="go on with an interrupted run")
    resume.add_argument("run", metavar="RUN", help="a run directory, e.g. runs/Pendulum-v1/1")
    resume.add_argument("--total-timesteps", type=int, metavar="N", help="a new goal")
    resume.add_argument(
        "--checkpoint", default="latest", metavar="N", help="go back to the checkpoint of N steps (default: latest)"
    )
    _add_import_flag(resume)
    _add_output_flags(resume)
    resume.set_defaults(run_command=_resume)

    evaluate = commands.add_parser("evaluate", help="returns of a trained policy, without exploration noise")
    evaluate.add_argument("run", metavar="RUN", help="a run directory, e.g. runs/Pendulum-v1/1")
    evaluate.add_argument("--episodes", type=int, default=100, metavar="N", help="default: 100")
    evaluate.add_argument("--seed", type=int, help="of the environment (default: from the run's)")
    evaluate.add_argument("--checkpoint", default="latest", metavar="WHICH", help="latest, best or a number of steps")
    _add_import_flag(evaluate)
    evaluate.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    evaluate.set_defaults(run_command=_evaluate)

    paths = commands.add_parser("paths", help="the gradient paths side by side on one minibatch, with a picture")
    paths.add_argument("env", metavar="ENV", help="a gymnasium id such as Pendulum-v1, or module:Id")
    paths.add_argument("--seed", type=int, help="of weights, actions and minibatch (default: random)")
    paths.add_argument("--picture", default="paths.png", metavar="FILE", help="the PNG to write (default: paths.png)")
    paths.add_argument(
        "--bounding",
        default="inverting",
        choices=("squashing", "inverting", "zeroing"),
        help="the one the picture shows (default: inverting)",
    )
    paths.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    paths.set_defaults(run_command=_paths)
    return parser


def _add_import_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-import",
        action="append",
        default=[],
        metavar="MODULE",
        help="let the run's environment, module:Id, import MODULE",
    )


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    parser.add_argument("--no-progress-bar", action="store_true", help="be quiet on stderr")


def _flags() -> dict[str, tuple[dataclasses.Field, type[AgentConfig], str]]:
    """Return every option of either algorithm by name, with the class it is read from and whose it is."""
    flags: dict[str, tuple[dataclasses.Field, type[AgentConfig], str]] = {}
    for kind, whose in ((DQNConfig, "DQN"), (DDPGConfig, "DDPG")):
        for field in dataclasses.fields(kind):
            flags[field.name] = field, kind, "" if field.name in flags else f" [{whose}]"
    return flags


def _add_config_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("options (defaults: the environment's preset)")
    for field, config, whose in _flags().values():
        kind, many, optional = field_type(config, field.name)
        flag = "--" + field.name.replace("_", "-")
        options: dict[str, Any] = {"default": _UNSET, "dest": field.name, "help": field.metadata["help"] + whose}
        if kind is bool:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["type"] = _or_none(kind if kind in (int, float) else str, optional)
            options["metavar"] = "N" if kind in (int, float) else "NAME"
            if many:
                options["nargs"] = "+"
        group.add_argument(flag, **options)


def _or_none(kind: type, optional: bool):
    def convert(text: str):
        return None if optional and text.lower() == "none" else kind(text)

    convert.__name__ = kind.__name__  # argparse names it in its message
    return convert


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


@contextlib.contextmanager
def _quiet_tensorflow() -> Iterator[None]:
    """Keep TensorFlow's start-up notices off the terminal; an exception shows what was held back.

    They are written by C++ straight to file descriptor 2, before any log level is read.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as notices:
        os.dup2(notices.fileno(), 2)
        try:
            import tensorflow as tf

            tf.get_logger().setLevel("ERROR")
            yield
        except BaseException:
            notices.seek(0)
            os.write(kept, notices.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


if __name__ == "__main__":
    sys.exit(main())
