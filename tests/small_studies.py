"""A study's file, a stub for ``ddpg`` that finishes cells immediately, and run directories without training."""

import json
import sys

from ddpg.runs import run_config
from ddpg.studies.study import cells_of, read_study
from ddpg.studies.study_folder import CellFolder

STUB = """
import json, os, pathlib, signal, sys, time

words = sys.argv[1:]
given = dict(zip(words[::1], words[1::1]))
with open(os.environ["STUB_NOTES"], "a") as notes:
    notes.write(json.dumps([words, os.environ["TF_NUM_INTRAOP_THREADS"]]) + "\\n")


def save(run, steps):
    folder = run / "checkpoints" / str(steps)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    (run / "config.json").write_text("{}")


if words[0] == "evaluate":
    if pathlib.Path(words[1]).parts[-3] == "5":
        print("the simulator says hello")
    print(json.dumps({"mean_return": 5.5}))
    if pathlib.Path(words[1]).parts[-3] == "10":
        sys.exit("ddpg: error: no simulator to close")
    sys.exit()
if words[0] == "train":
    seed, run = int(given["--seed"]), pathlib.Path(given["--root"], words[1], "1")
    save(run, 0)
else:
    run = pathlib.Path(words[1])
    seed = int(run.parts[-3])
if words[0] == "train" and seed == 7:
    print("ddpg: error: bad luck", file=sys.stderr)
    print("and a word after it", file=sys.stderr)
    sys.exit(3)
if words[0] == "train" and seed == 8:
    def leave(*_):
        save(run, int(os.environ.get("STUB_SAVES", "40")))
        sys.exit(143)
    signal.signal(signal.SIGTERM, leave)
    (run / "ready").touch()
    time.sleep(20)
if seed == 9:
    os.kill(os.getpid(), signal.SIGKILL)
if seed == 6:
    sys.exit(0)
save(run, 100)
if seed == 10:
    print("ddpg: error: no simulator to close", file=sys.stderr)
    sys.exit(3)
"""

STUDY = """
environments = ["Pendulum-v1"]
seeds = {seeds}
total_timesteps = 100
{more}
[configurations]
plain = {{}}
"""


class Stubbed:
    """A study in ``folder`` whose cells a stub runs; seeds 5 to 10 fail, each in another way."""

    def __init__(self, folder, monkeypatch, seeds, more=""):
        self.root, self.file, self.notes = folder / "out", folder / "study.toml", folder / "notes"
        monkeypatch.setenv("STUB_NOTES", str(self.notes))
        (folder / "stub.py").write_text(STUB)
        self.command = (sys.executable, "-S", str(folder / "stub.py"))
        self.describe(seeds, more)

    def describe(self, seeds, more=""):
        self.file.write_text(STUDY.format(seeds=seeds, more=more))
        self.groups = read_study(self.file)
        self.cell_folders = [CellFolder(self.root, cell) for cell in cells_of(self.groups)]

    @property
    def ready(self):
        """Whether the first cell, of seed 8, waits for SIGTERM."""
        run = self.cell_folders[0].run
        return run is not None and (run / "ready").exists()

    @property
    def calls(self):
        """The stub's arguments and number of threads in every call, in order."""
        return [json.loads(line) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []


def train_by_hand(cell_folder, returns, steps=100):
    """Write the run directory of a cell with evaluations every 50 steps and 50 training steps a second."""
    group, folder = cell_folder.cell.group, cell_folder.path / "1"
    saved = folder / "checkpoints" / str(steps)
    saved.mkdir(parents=True)
    (saved / "manifest.json").write_text("{}")
    made = {"algorithm": group.algorithm, "seed": cell_folder.cell.seed, "config": group.options, "versions": {}}
    settings = {
        name: getattr(group, name) for name in ("total_timesteps", "evaluation_interval", "evaluation_episodes")
    }
    made |= settings | {"env_id": group.env_id, "n_envs": 1, "vectorization": "sync", "command": []}
    run_config.write(folder, made)
    rows = [f"{50 * (index + 1)},{value},1.5," for index, value in enumerate(returns)]
    (folder / "evaluations.csv").write_text("\n".join(["timesteps,mean_return,std_return,success_rate", *rows, ""]))
    (folder / "metrics.csv").write_text(f"timesteps,seconds,fps\n{steps},{steps / 50},50\n")
