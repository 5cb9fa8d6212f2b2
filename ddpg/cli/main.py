"""The entry point of the ``ddpg`` command: it runs a subcommand, and turns errors into one line and an exit status."""

import contextlib
import inspect
import os
import re
import signal
import sys
import warnings
from collections.abc import Sequence

# Set before NumPy reads it. Our matrix products are small, and on a busy machine a second BLAS thread that waits for
# its core makes `ddpg paths` five times as slow. TensorFlow has threads of its own.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ddpg
from ddpg.cli.command import Command, json_line
from ddpg.cli.inspect import CheckCritic, Evaluate, Export, Paths, Plot, Record, Runs, Watch, Zoo
from ddpg.cli.studies import Study, Tune
from ddpg.cli.terminal import silence_stdout_at_exit, stdout_reserved_for_answer, tolerate_broken_pipes
from ddpg.cli.train import Resume, Train
from ddpg.config import name_hints
from ddpg.errors import CellsFailed, EnvironmentFault, FileFault, UsageError, did_you_mean, file_faults
from ddpg.progress import warnings_in_one_line
from ddpg.runs import signals

# Heavy modules are imported inside the commands, so that `ddpg --help` answers at once.

_KINDS = (Train, Resume, Evaluate, CheckCritic, Paths, Export, Record, Watch, Plot, Runs, Zoo, Study, Tune)
# CheckCritic is check-critic.
COMMANDS: dict[str, type[Command]] = {re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower(): kind for kind in _KINDS}

EXIT_STATUS = """\
exit status:
  0    done, even if nobody reads stdout any more
  1    training diverged, or cells of a study or trials failed
  2    bad input
  3    the environment failed
  4    a file is damaged, or the disk refused
  130  stopped by SIGINT (Ctrl-C), after printing how to resume
  143  the same, by SIGTERM
  129  the same, by SIGHUP (the terminal was closed)
"""


@tolerate_broken_pipes()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status (see :data:`EXIT_STATUS`)."""
    whole_process, arguments = arguments is None, sys.argv[1:] if arguments is None else arguments
    warnings.filterwarnings("ignore", r".*ERROR: ")  # gymnasium's, on a worker's exception that we report
    with warnings_in_one_line():
        return _main(arguments, whole_process)


def _main(arguments: Sequence[str], whole_process: bool) -> int:
    request = signals.StopRequest()
    try:
        with contextlib.ExitStack() as stack:
            if whole_process and "--json" in arguments:
                stack.callback(silence_stdout_at_exit)
            if [*arguments[:1]] in (["train"], ["resume"], ["study"], ["tune"]):
                request = stack.enter_context(signals.stop_on_signals(ends_process=True))
                if arguments[0] in ("study", "tune"):
                    request.answer = signals.ANSWER_BEFORE_CELLS  # until the cells begin
            elif whole_process:
                stack.enter_context(signals.exit_on_termination())
            with file_faults("nothing else was changed"):
                _run(*arguments)
                print(end="", flush=True)
    except SystemExit as left:
        if left.code:
            raise
        return 0  # help was printed
    except (UsageError, FloatingPointError) as error:
        print(f"ddpg: error: {_one_line(error)}", file=sys.stderr)
        if isinstance(error, CellsFailed):
            return request.status or 1
        return {FloatingPointError: 1, EnvironmentFault: 3, FileFault: 4}.get(type(error), 2)
    except KeyboardInterrupt as error:
        print(f"ddpg: interrupted{': ' * bool(error.args)}{_one_line(error)}", file=sys.stderr)
        return 128 + (request.number or signal.SIGINT)
    return request.status


def _run(name: str = "", *arguments: str) -> None:
    if name in COMMANDS:
        as_json = "--json" in arguments
        command = COMMANDS[name].parse(arguments, f"ddpg {name}")
        with stdout_reserved_for_answer(as_json):
            answer = command()
        if answer is not None:
            print(json_line(answer.values) if as_json else answer.text)
            if answer.failure is not None:
                raise answer.failure
    elif name in ("-h", "--help"):
        print(_overview())
    elif name == "--version":
        print(f"ddpg {ddpg.__version__}")
    else:
        here = name_hints.COMMANDS.get(name.lower().replace("-", "_").removesuffix(".py"))
        hint = did_you_mean(name, COMMANDS) if here is None else f"; did you mean {here!r}?"
        what = f"no command {name!r}{hint}" if name else "a command is missing"
        raise UsageError(f"{what}; the commands: {', '.join(COMMANDS)}; more: ddpg --help")


def _overview() -> str:
    commands = "\n".join(f"  {name:13}{inspect.getdoc(kind)}" for name, kind in COMMANDS.items())
    return (
        "usage: ddpg COMMAND ...\n\nDDPG, and DQN for discrete actions, with pluggable gradient paths.\n\n"
        f"commands:\n{commands}\n\n"
        "options:\n  -h, --help  show this help, or a command's\n  --version   show the version\n\n" + EXIT_STATUS
    )


def _one_line(error: BaseException | str) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())
