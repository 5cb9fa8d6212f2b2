"""Plant code in every file that is loaded, and check that none of it is executed.

    python -m benchmarks.faults.payloads [--only TEXT]

An executed payload leaves a marker file. It is planted as a pickle in every file of a run directory and its
checkpoints, as a NumPy archive of objects, as text in names and cells, and as a module that could be imported.
"""

import argparse
import contextlib
import io
import os
import pickle
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.faults import common


class Payload:
    """Creates the marker file when it is unpickled."""

    mark = ""

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def archive() -> bytes:
    """Return a NumPy archive with a pickled object."""
    file = io.BytesIO()
    np.savez(file, weights=np.array([Payload()], dtype=object))
    return file.getvalue()


def resealed(run: Path, **fields: object) -> None:
    """Change ``config.json`` and adjust its checksum."""
    from ddpg.runs import run_config

    run_config.write(run, run_config.read(run) | fields)


def planted(run: Path, module: str) -> dict[str, Callable[[Path], object]]:
    """Return functions that plant a payload in a copy of ``run``, by a description of the place."""
    code = f"__import__('os').system('touch {Payload.mark}')"
    found: dict[str, Callable[[Path], object]] = {}
    for path in sorted(run.rglob("*")):
        if path.is_file():
            name = str(path.relative_to(run))
            kind = name if not name.startswith("events") else "events"
            found[f"pickle as {kind}"] = lambda copy, name=name: (copy / name).write_bytes(pickle.dumps(Payload()))
            if name.endswith(".safetensors"):
                found[f"objects as {kind}"] = lambda copy, name=name: (copy / name).write_bytes(archive())
            if name.endswith(".csv"):
                found[f"code in {kind}"] = lambda copy, name=name: (copy / name).write_text(
                    (copy / name).read_text().splitlines()[0] + f'\n"{code}",=cmd|"/c touch"!A1\n'
                )
    found["module as env_id"] = lambda copy: resealed(copy, env_id=f"{module}:Pendulum-v1")
    found["code as env_id"] = lambda copy: resealed(copy, env_id=code)
    found["code as an option"] = lambda copy: resealed(copy, config={"td_target": code})
    found["module as an option"] = lambda copy: resealed(copy, config={"optimizer": {"custom": f"{module}.run"}})
    found["module beside the run"] = lambda copy: shutil.copy(Path(module).with_suffix(".py"), copy / "ddpg.py")
    return found


def try_commands(copy: Path, toml: Path) -> list[int]:
    """Return the exit statuses of all commands that read a run directory or a configuration."""
    from ddpg.cli.main import main as ddpg

    commands = [
        ["evaluate", str(copy), "--episodes", "1"],
        ["evaluate", str(copy), "--episodes", "1", "--checkpoint", "best"],
        ["resume", str(copy), "--total-timesteps", "420", "--no-progress-bar"],
        ["train", "Pendulum-v1", "--config", str(toml), "--root", str(copy / "other"), "--total-timesteps", "1"],
    ]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return [ddpg(command) for command in commands]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="only places whose description contains TEXT")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    table = []
    with tempfile.TemporaryDirectory(prefix="payloads-") as name:
        root = Path(name)
        os.chdir(root)
        mark = root / "mark"
        Payload.mark = str(mark)
        (root / "evil.py").write_text(f"import os\nos.system('touch {mark}')\ndef run(*_): ...\n")
        (root / "evil.toml").write_bytes(pickle.dumps(Payload()))
        sys.path.insert(0, str(root))  # so that the module can be imported
        run = common.trained(
            *(root / "runs", "Pendulum-v1", "--seed", "3", "--no-progress-bar", *common.SMALL),
            *("--total-timesteps", "400", "--evaluation-interval", "200", "--evaluation-episodes", "1"),
        )
        for where, plant in planted(run, "evil").items():
            if options.only not in where:
                continue
            copy = shutil.copytree(run, root / "copy")
            plant(copy)
            row = {"where": where, "statuses": " ".join(map(str, try_commands(copy, root / "evil.toml")))}
            table.append(row | {"executed": mark.exists()})
            mark.unlink(missing_ok=True)
            shutil.rmtree(copy)
        # Check the check itself: an executed payload does create the marker file.
        pickle.loads(pickle.dumps(Payload()))
        assert mark.exists()
    executed = sum(row["executed"] for row in table)
    common.report("payloads", table, executed=executed)
    print(f"{executed} of {len(table)} payloads were executed")


if __name__ == "__main__":
    main()
