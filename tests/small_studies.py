"""A study's file, and a command in the place of ``ddpg`` whose cells are done in no time."""

import json
import sys

from ddpg.studies.study import cells_of, read_study
from ddpg.studies.study_folder import Place

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
    print(json.dumps({"mean_return": 5.5}))
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
        save(run, 40)
        sys.exit(143)
    signal.signal(signal.SIGTERM, leave)
    (run / "ready").touch()
    time.sleep(20)
if seed == 9:
    os.kill(os.getpid(), signal.SIGKILL)
if seed == 6:
    sys.exit(0)
save(run, 100)
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
    """A study in ``folder`` whose cells a stub does; seeds 6 to 9 go wrong, each in its way."""

    def __init__(self, folder, monkeypatch, seeds, more=""):
        self.root, self.file, self.notes = folder / "out", folder / "study.toml", folder / "notes"
        monkeypatch.setenv("STUB_NOTES", str(self.notes))
        (folder / "stub.py").write_text(STUB)
        self.command = (sys.executable, "-S", str(folder / "stub.py"))
        self.describe(seeds, more)

    def describe(self, seeds, more=""):
        self.file.write_text(STUDY.format(seeds=seeds, more=more))
        self.groups = read_study(self.file)
        self.places = [Place(self.root, cell) for cell in cells_of(self.groups)]

    @property
    def calls(self):
        """What the command was called with, and its threads, in order."""
        return [json.loads(line) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []
