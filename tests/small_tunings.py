"""A tuning plan, and a stub for ``ddpg`` that finishes training immediately; its return depends on its options."""

import json
import sys

from ddpg import DDPGConfig
from ddpg.studies.engine_choice import EngineChoice
from ddpg.studies.search_space import read_space
from ddpg.studies.study import Group
from ddpg.studies.tuning import run_tuning
from ddpg.studies.tuning_plan import plan_of

# Evaluated at 20, 40, ... 100 steps. At step s it returns s/100 of -|log10(actor_learning_rate) + 3|, less seed/1000.
# STUB holds exceptions: the seconds that an evaluation takes, trials that diverge, fail or are killed, and seeds
# with one episode that outlasts the evaluation at 40 steps.
STUB = """
import json, math, os, pathlib, signal, sys, time

words = sys.argv[1:]
given = dict(zip(words, words[1:]))
how = json.loads(os.environ["STUB"])
if words[0] == "train":
    run = pathlib.Path(given["--root"], words[1], "1")
    begun = 0
else:
    run = pathlib.Path(words[1])
    begun = max(int(path.name) for path in (run / "checkpoints").iterdir())
seed, name = int(run.parts[-3]), run.parts[-4]


def save(steps):
    folder = run / "checkpoints" / str(steps)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    (run / "config.json").write_text("{}")


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
if words[0] == "train":
    run.mkdir(parents=True)
    (run / "evaluations.csv").write_text("timesteps,mean_return" + chr(10))
    save(0)
with open(how["notes"], "a") as notes:  # last, so that a test that waits for it and then kills finds a run to resume
    notes.write(json.dumps([words[0], name, seed, begun]) + chr(10))
if name in how.get("diverge", ()):
    print("ddpg: error: the loss is nan after 7 updates: training diverged; lower it", file=sys.stderr)
    sys.exit(1)
if name in how.get("fail", ()):
    print("ddpg: error: bad luck", file=sys.stderr)
    sys.exit(3)
options = dict(line.split(" = ") for line in (run.parent / "options.toml").read_text().splitlines())
score = -abs(math.log10(float(options["actor_learning_rate"])) + 3) - seed / 1000
for steps in range(begun + 20, 101, 20):
    if steps == 40 and seed in how.get("outlasting", ()):
        continue
    time.sleep(how.get("seconds", 0) if name in how.get("slow", [name]) else 0)
    with (run / "evaluations.csv").open("a") as file:
        file.write(f"{steps},{score * steps / 100}" + chr(10))
    save(steps)
"""

SPACE = "actor_learning_rate = { low = 1e-5, high = 1e-1, log = true }\n"


class Tuning:
    """A tuning in ``folder`` whose cells a stub runs."""

    def __init__(self, folder, monkeypatch, space=SPACE, how=None, **changes):
        self.folder, self.root, self.notes = folder, folder / "out", folder / "notes"
        self.how(monkeypatch, **(how or {}))
        (folder / "stub.py").write_text(STUB)
        (folder / "space.toml").write_text(space)
        self.command = (sys.executable, "-S", str(folder / "stub.py"))
        self.plan = self.planned(**changes)

    def how(self, monkeypatch, **how):
        monkeypatch.setenv("STUB", json.dumps({"notes": str(self.notes), **how}))

    def planned(self, seeds=1, tuning_seed=0, pruning=False, **options):
        base = DDPGConfig(**{"hidden": (4,), "learning_starts": 0, **options}).to_json()
        cells = Group(
            env_id="Pendulum-v1",
            configuration="ground",
            algorithm="DDPG",
            seeds=list(range(seeds)),
            total_timesteps=100,
            evaluation_interval=20,
            evaluation_episodes=1,
            final_episodes=0,
            n_envs=1,
            vectorization="sync",
            wrappers=[],
            env_kwargs={},
            options=base,
        )
        space = read_space("DDPG", base, self.folder / "space.toml")
        return plan_of(cells, DDPGConfig().to_json(), space, tuning_seed, pruning)

    def run(self, wanted, fresh_seeds=0, jobs=1, plan=None, **options):
        return run_tuning(
            self.root,
            plan or self.plan,
            wanted,
            fresh_seeds,
            EngineChoice(jobs=jobs, command=self.command),
            again=["ddpg", "tune", "it"],
            **{"progress_bar": False, **options},
        )

    @property
    def calls(self):
        """The command, configuration, seed and first step of every process, in order."""
        return [json.loads(line) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []
