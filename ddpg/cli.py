"""The ``ddpg`` command."""

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any

# Before NumPy reads it: our products are small, and on a busy machine a second BLAS thread that waits for its core
# makes `ddpg paths` five times as slow. TensorFlow's threads are others.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from ddpg.commands import comparing, export, watching
from ddpg.commands.flags import add_import_flag
from ddpg.commands.quiet import quiet_tensorflow
from ddpg.config import AgentConfig, DDPGConfig, DQNConfig, read_toml
from ddpg.errors import EnvironmentFault, FileFault, UsageError, file_faults
from ddpg.options import field_type
from ddpg.runs import signals

# TensorFlow is imported inside the commands: `ddpg --help` answers at once.

EXIT_STATUS = """\
exit status:
  0    done
  1    training diverged
  2    bad input
  3    the environment failed
  4    a file is damaged, or the disk refused
  130  ended by SIGINT (Ctrl-C); what there is to go on from was said
  143  the same by SIGTERM
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status, of :data:`EXIT_STATUS`."""
    options = _parser().parse_args(arguments)
    request = signals.Request()
    warnings.filterwarnings("ignore", r".*ERROR: ")  # gymnasium's, of a process whose exception we say in one line
    try:
        with contextlib.ExitStack() as stack:
            if options.run_command in (_train, _resume):
                request = stack.enter_context(signals.watching(ends_process=True))
            with file_faults("nothing else was changed"):
                options.run_command(options)
    except (UsageError, FloatingPointError) as error:
        print(f"ddpg: error: {_one_line(error)}", file=sys.stderr)
        return {FloatingPointError: 1, EnvironmentFault: 3, FileFault: 4}.get(type(error), 2)
    except KeyboardInterrupt as error:
        print(f"ddpg: interrupted{': ' * bool(error.args)}{_one_line(error)}", file=sys.stderr)
        return 128 + (request.number or signal.SIGINT)
    return request.status


def _train(options: argparse.Namespace) -> None:
    values = read_toml(options.config) if options.config else {}
    values |= {name: getattr(options, name) for name in _flags() if getattr(options, name) is not _UNSET}
    with quiet_tensorflow():
        from ddpg.agents.registry import agent_for
        from ddpg.runs import training
        from ddpg.runs.environments import id_of, make_env
        from ddpg.runs.presets import preset_config
        from ddpg.runs.report import print_report
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
        n_envs=options.n_envs,
        vectorization=options.vectorization,
        progress_bar=not options.no_progress_bar,
    )
    print_report(run, options.json)


def _resume(options: argparse.Namespace) -> None:
    with quiet_tensorflow():
        from ddpg.runs import training
        from ddpg.runs.report import print_report
    run = training.resume(
        options.run,
        total_timesteps=options.total_timesteps,
        which=options.checkpoint,
        allow_import=options.allow_import,
        progress_bar=not options.no_progress_bar,
    )
    print_report(run, options.json)


def _evaluate(options: argparse.Namespace) -> None:
    with quiet_tensorflow():
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
    with quiet_tensorflow():
        from ddpg.laboratory.compare import compare_paths
        from ddpg.laboratory.picture import draw_paths
        from ddpg.laboratory.text import paths_text
        from ddpg.runs.environments import id_of, make_env
        from ddpg.runs.presets import preset_config
    env = make_env(options.env)
    name = id_of(env)
    with quiet_tensorflow():
        report = {"env_id": name, **compare_paths(env, preset_config(name), options.seed)}
    env.close()
    title = f"Where gradients flow in one update of DDPG: {name}, seed {report['seed']}"
    report["picture"] = str(draw_paths(report, options.picture, options.bounding, title))
    if options.json:
        print(json.dumps(report))
        return
    print(f"{paths_text(report)}\nThe picture is in {report['picture']}")


# -- parsing ------------------------------------------------------------------------------------------

_UNSET = object()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ddpg",
        description="DDPG, and DQN for discrete actions, with pluggable gradient paths.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    train.add_argument(
        "--n-envs", type=int, default=1, metavar="N", help="environments to act in at the same time (default: 1)"
    )
    train.add_argument(
        "--vectorization", default="sync", help="of several: sync, in this process, or async, in a process each"
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
    add_import_flag(resume)
    _add_output_flags(resume)
    resume.set_defaults(run_command=_resume)

    evaluate = commands.add_parser("evaluate", help="returns of a trained policy, without exploration noise")
    evaluate.add_argument("run", metavar="RUN", help="a run directory, e.g. runs/Pendulum-v1/1")
    evaluate.add_argument("--episodes", type=int, default=100, metavar="N", help="default: 100")
    evaluate.add_argument("--seed", type=int, help="of the environment (default: from the run's)")
    evaluate.add_argument("--checkpoint", default="latest", metavar="WHICH", help="latest, best or a number of steps")
    add_import_flag(evaluate)
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

    export.add(commands)
    watching.add(commands)
    comparing.add(commands)
    return parser


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


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())
