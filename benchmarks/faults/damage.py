"""Resume runs from damaged and forged run directories: no change may go unnoticed, crash, or take much memory or time.

    python -m benchmarks.faults.damage [--trials 1000] [--seed 0]

Each trial changes one file in a copy of a run directory. Its bytes are overwritten, removed, inserted or moved; or the
file is cut, emptied, enlarged, swapped for another file, or replaced by a link, a pipe or a directory; or one value in
a manifest or in ``config.json`` is replaced and the checksum adjusted. Then another process resumes the run up to the
point where it would learn. A trial has one of these outcomes:

- ``refused``: a ``UsageError`` with one line.
- ``told``: a warning says that the run continues from another checkpoint or without some data.
- ``same``: everything that was read equals what was saved.
- ``forged``: another value within its range, with a matching checksum; checksums detect damage, not forgery.
- ``a cell of a table``: a number in a table for users, from which nothing is computed.
- ``SILENT``, ``TRACEBACK``, ``MEMORY`` (over 200 MB), ``TIME`` (over 5 s): failures.
"""

import argparse
import collections
import contextlib
import copy
import hashlib
import json
import os
import random
import resource
import shutil
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.faults import common

MOST_MEMORY, MOST_TIME = 200_000, 5.0  # KiB, seconds
EVIL: list[Any] = [
    *(None, True, False, -1, 0, 1, 0.5, 7, 2**31, 2**53, 2**63, 2**128, -(2**64), 1e-300, 1e12, -1e300, 1e308),
    *("", "x", "60", "NaN", "\0\n\x1b[2J", "a" * 5000, "../../etc/passwd", "relu", "linear"),
    *([], {}, [[]], [1e9], [10**9], [0], [None], ["x"] * 300, {"custom": "x"}, {"": {}}),
]


class AboutToLearn(BaseException):
    """Raised when everything has been read."""


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` after one to three small changes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        start = rng.randint(0, len(changed))
        end = min(len(changed), start + rng.randint(1, 64))
        piece = bytes(changed[start:end])
        kind = rng.choice(["flip", "overwrite", "remove", "insert", "repeat", "move", "cut"])
        if kind == "flip" and piece:
            changed[start] ^= 1 << rng.randrange(8)
        elif kind == "overwrite":
            changed[start:end] = rng.randbytes(end - start)
        elif kind == "insert":
            changed[start:start] = rng.randbytes(rng.randint(1, 20))
        elif kind == "repeat":
            changed[start:start] = piece
        elif kind == "cut":
            del changed[start:]
        else:
            del changed[start:end]
            if kind == "move":
                place = rng.randint(0, len(changed))
                changed[place:place] = piece
    return bytes(changed)


def replaced(path: Path, others: list[Path], rng: random.Random) -> str:
    """Replace a file by something else; return a description."""
    kind = rng.choice(["empty", "another file", "link to a device", "pipe", "directory", "4 GB", "deep JSON"])
    content = path.read_bytes()
    path.unlink()
    if kind == "another file":
        shutil.copy(rng.choice(others), path) if others else path.write_bytes(content)
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "deep JSON":
        path.write_bytes(b"[" * 200_000)
    else:
        path.write_bytes(b"" if kind == "empty" else content)
        if kind == "4 GB":
            os.truncate(path, 4 << 30)
    return kind


def crafted(path: Path, rng: random.Random) -> str:
    """Replace one value of a JSON document and adjust its checksum; return a description."""
    from ddpg.checkpoints import safe_json

    fields = json.loads(path.read_text())
    checksum = f"{path.stem}_sha256"
    fields.pop(checksum)
    inner: Any = fields
    places = []
    while isinstance(inner, (dict, list)) and inner:
        key = rng.choice(sorted(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))
        places.append(key)
        holder, inner = inner, inner[key]
        if rng.random() < 0.3:
            break
    value = copy.deepcopy(rng.choice(EVIL))
    holder[places[-1]] = value
    try:
        fields[checksum] = hashlib.sha256(safe_json.canonical_json(fields)).hexdigest()
    except (TypeError, ValueError):
        fields[checksum] = "0" * 64
    path.write_text(json.dumps(fields))
    return f"{'.'.join(map(str, places))} = {str(value)[:40]}"


def read_all(run: Path, seen_warnings: list[str]) -> dict[str, Any]:
    """Resume a run up to the point where it would learn; return digests of what was read."""
    import ddpg
    from ddpg.agents.off_policy import OffPolicyAgent

    found: dict[str, Any] = {}

    def stop(agent: OffPolicyAgent, *_: Any, **__: Any) -> None:
        values = agent.session.run(list(agent.global_variables.values()))
        arrays = [*values, *(np_array for _, np_array in sorted(agent.replay.state().items()))]
        found["agent"] = hashlib.sha256(
            b"".join(bytes(memoryview(a).cast("B")) for a in map(_plain, arrays))
        ).hexdigest()
        found["config"] = json.dumps(agent.config.to_json(), sort_keys=True)
        found["counters"] = (agent.num_timesteps, agent.num_updates, agent.seed)
        found["states"] = str({name: g.bit_generator.state for name, g in agent.generators.items()})
        raise AboutToLearn

    OffPolicyAgent.learn = stop
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.suppress(AboutToLearn):
            ddpg.resume(run, total_timesteps=10_000, progress_bar=False)
        seen_warnings += [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]
    for table in ("metrics", "episodes", "evaluations"):
        found[table] = common.rows(run, table)
    return found


def _plain(array: Any) -> Any:
    import numpy as np

    return np.ascontiguousarray(np.atleast_1d(array)).reshape(-1)


def outcome(run: Path, sound: dict[str, Any], forged: bool) -> str:
    """Return the outcome of resuming a changed run."""
    from ddpg.errors import UsageError

    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    seen_warnings: list[str] = []
    try:
        found = read_all(run, seen_warnings)
    except UsageError as error:
        result = "refused" if "\n" not in str(error) else f"TRACEBACK of several lines: {error}"
    except Exception as error:
        result = f"TRACEBACK {type(error).__name__}: {error}"
    else:
        found = json.loads(json.dumps(found))  # as the values of the sound run were converted
        differ = [name for name in found if found[name] != sound[name]]
        if not differ:
            result = "same"
        elif seen_warnings:
            result = "told"
        elif forged:
            result = "forged"
        elif set(differ) <= {"metrics", "episodes", "evaluations"}:
            result = "a cell of a table"
        else:
            result = f"SILENT {' '.join(differ)}"
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    # Making an agent takes some memory and time itself, so limits are relative to a sound run.
    if memory > MOST_MEMORY + sound["memory"]:
        return f"MEMORY {memory / 1000:.0f} MB, {result}"
    if seconds > MOST_TIME + sound["seconds"]:
        return f"TIME {seconds:.1f} s, {result}"
    return result


def in_a_fork(work: Callable[[], Any]) -> Any:
    """Return what ``work`` returns in a child process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(work()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return json.loads(data) if data else "TRACEBACK the process died"


def measured(run: Path) -> dict[str, Any]:
    """Return what resuming a sound run reads, with its memory and seconds."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    found = read_all(run, [])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return found | {"memory": memory, "seconds": time.perf_counter() - start}


def train(root: Path) -> None:
    """Train a run that leaves two checkpoints."""
    import ddpg

    options = {"hidden": (4,), "batch_size": 4, "learning_starts": 20, "updates_per_call": 4, "buffer_size": 60}
    config = ddpg.DDPGConfig(**options, jit=False)
    length = {"total_timesteps": 600, "evaluation_interval": 200, "evaluation_episodes": 1}
    ddpg.train("Pendulum-v1", config, seed=0, root=root, progress_bar=False, **length)


def main() -> None:
    """Run the trials and write the table of failures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, help="of the random changes")
    options = parser.parse_args()
    import ddpg.runs.training  # noqa: F401  once, for all forked processes

    rng = random.Random(options.seed)
    rows, counts = [], collections.Counter()
    with tempfile.TemporaryDirectory(prefix="damage-") as name:
        folder = Path(name)
        in_a_fork(lambda: train(folder / "sound"))
        original = common.run_in(folder / "sound")
        assert original is not None
        names = sorted(
            str(path.relative_to(original))
            for path in original.rglob("*")
            if path.suffix in (".json", ".csv", ".safetensors") and "best" not in path.parts
        )
        run = folder / "trial" / "Pendulum-v1" / "1"

        def fresh() -> None:
            shutil.rmtree(folder / "trial", ignore_errors=True)
            shutil.copytree(original, run)

        fresh()
        sound = json.loads(json.dumps(in_a_fork(lambda: measured(run))))
        for number in range(options.trials):
            fresh()
            file = run / rng.choice(names)
            others = [run / other for other in names if run / other != file and (run / other).suffix == file.suffix]
            crafting = file.suffix == ".json" and rng.random() < 0.6
            if crafting:
                what = crafted(file, rng)
            elif rng.random() < 0.25:
                what = replaced(file, others, rng)
            else:
                what = "bytes"
                file.write_bytes(damaged(file.read_bytes(), rng))
            result = in_a_fork(lambda crafting=crafting: outcome(run, sound, crafting))
            counts[result.split()[0] if result[0].isupper() else result] += 1
            if result[0].isupper():
                rows.append(
                    {"trial": number, "file": str(file.relative_to(run)), "change": what, "result": result[:300]}
                )
                print(rows[-1], flush=True)
            if (number + 1) % 100 == 0:
                print(number + 1, dict(counts), flush=True)
    common.report("damage", rows or [{"trial": "", "file": "", "change": "", "result": ""}], **counts)
    print(dict(counts))


if __name__ == "__main__":
    main()
