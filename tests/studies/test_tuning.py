"""Tuning from end to end, with a stub for training whose returns depend on the options."""

import csv
import dataclasses
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from refusals import refuses
from small_tunings import SPACE, Tuning

from ddpg import DDPGConfig, UsageError
from ddpg.cli.main import main
from ddpg.cli.studies import WithEngine
from ddpg.cli.train import Train
from ddpg.config.options import from_toml
from ddpg.config.toml_file import read_toml
from ddpg.errors import FileFault
from ddpg.runs import signals
from ddpg.runs.lock import run_lock
from ddpg.studies import scheduler, tuning_report
from ddpg.studies.engine_choice import EngineChoice
from ddpg.studies.search_space import read_space
from ddpg.studies.study_folder import folders_of, write_study
from ddpg.studies.trials import Trials
from ddpg.studies.tuning_report import write_tuning_report

DRAW = tuning_report._history


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Return a function that plans a tuning; its report has no figure, which takes longer than the rest."""
    monkeypatch.setattr(scheduler, "_POLL_INTERVAL", 0.03)
    monkeypatch.setattr(tuning_report, "_history", lambda path, plan, trials: path)
    return lambda *arguments, **options: Tuning(tmp_path, monkeypatch, *arguments, **options)


def score(trial):
    """What the stub returns for a trial on seed 0."""
    return -abs(math.log10(trial.changes["actor_learning_rate"]) + 3)


def results(found):
    with (found.root / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def report(found, tuned):
    return write_tuning_report(found.root, found.plan, tuned, ["ddpg", "tune", "it"])


def test_trials_are_trained_and_valued_once(small, capsys):
    found = small()
    tuned = found.run(4)
    assert [call[:3] for call in found.calls] == [["train", f"trial-000{number}", 0] for number in range(4)]
    assert [trial.state for trial in tuned.trials] == ["complete"] * 4
    for trial in tuned.trials:
        assert trial.value == pytest.approx(score(trial))
        assert trial.returns == pytest.approx({index: score(trial) * index / 5 for index in range(2, 6)})
    # The first trial is the base configuration, which is in the space.
    assert tuned.trials[0].changes["actor_learning_rate"] == DDPGConfig().actor_learning_rate
    assert tuned.base_first
    assert tuned.best.value == max(trial.value for trial in tuned.trials)
    assert "; best: trial 0, 0" in capsys.readouterr().err
    again = found.run(6)
    assert again.trials[:4] == tuned.trials
    assert len(found.calls) == 6
    assert len(found.run(2).trials) == 6


@pytest.mark.parametrize(
    ("starts", "space", "times"), [(100, "", 1), (0, "", 0), (100, "learning_starts = [0, 100]\n", 0)]
)
def test_mostly_random_trials_are_warned_of_before_they_start(starts, space, times, small, capsys):
    small(SPACE + space, learning_starts=starts).run(2)
    stderr = capsys.readouterr().err
    warning = (
        "Pendulum-v1: nothing will be learned: all 100 steps are random (learning_starts); train longer, or take e.g. "
    )
    assert stderr.count(f"{warning}learning_starts = 10 in its options\n") == stderr.count("random") == times


def test_seeds_are_compared_at_the_same_steps_when_an_episode_outlasts_the_interval(small):
    found = small(seeds=2, how={"outlasting": [1]})
    (trial,) = found.run(1).trials
    assert trial.returns == pytest.approx({nth: (score(trial) - 0.0005) * nth / 5 for nth in (3, 4, 5)})


def test_the_results_of_a_pruned_trial_end_at_the_same_evaluation_of_each_seed(small):
    """That at 60 steps is the third of seed 0, and the second of seed 1, which had none at 40."""
    found = small(seeds=2, how={"outlasting": [1]})
    tuned = found.run(1)
    pruned = dataclasses.replace(tuned.trials[0], state="pruned", returns={3: -1.0})
    report(found, dataclasses.replace(tuned, trials=[pruned], best=None))
    steps = [(row["seed"], row["step"]) for row in results(found) if row["measure"] == "evaluation_mean_return"]
    assert steps == [("0", "20"), ("0", "40"), ("0", "60"), ("1", "20"), ("1", "60")]


def test_steps_map_to_numbers_of_evaluations(small):
    plan = small().plan
    uneven = msgspec.structs.replace(plan, base=msgspec.structs.replace(plan.base, total_timesteps=90))
    assert [uneven.nth(step) for step in (20, 39, 40, 63, 81, 90)] == [1, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("options", "space", "first"),
    [
        ({"learning_starts": 0}, "", 2),  # a quarter of 100 steps is done by step 40
        ({"learning_starts": 20}, "", 2),  # 20 + 80/4 = 40
        ({"learning_starts": 40}, "", 3),
        ({"learning_starts": 0}, "learning_starts = [0, 60]\n", 4),  # 60 + 40/4 = 70
        ({"learning_starts": 0}, "learning_starts = { low = 0, high = 80 }\n", 5),
        ({"learning_starts": 500}, "", 25),  # never
    ],
)
def test_no_trial_is_pruned_before_a_quarter_of_its_learning(options, space, first, small):
    assert small(SPACE + space, **options).plan.warmup == first


def test_hopeless_trials_are_pruned(small):
    found = small(pruning=True, how={"seconds": 0.2, "slow": [f"trial-000{number}" for number in (5, 6, 7)]})
    tuned = found.run(8)
    pruned = [trial for trial in tuned.trials if trial.state == "pruned"]
    assert pruned
    values = sorted(trial.value for trial in tuned.trials if trial.state == "complete")
    for trial in pruned:
        assert {*trial.returns} == {*range(2, max(trial.returns) + 1)}
        assert max(trial.returns) < 5
        assert trial.number >= 5
        assert trial.reason is None
        assert score(trial) < values[len(values) // 2]
        (cell_folder,) = folders_of(found.root, [found.plan.trial(trial.number, trial.changes)])
        assert cell_folder.saved < 100
    report(found, tuned)
    rows = [row for row in results(found) if row["trial"] == str(pruned[0].number)]
    assert [row["measure"] for row in rows] == ["evaluation_mean_return"] * max(pruned[0].returns) + ["objective"]
    count = len(found.calls)
    found.run(8)
    assert len(found.calls) == count  # pruned trials are not resumed


_REFUSED = {"noise_scale": 0.0, "noise_schedule": "linear"}


def test_invalid_combinations_of_options_are_pruned_with_the_reason(small):
    found = small(SPACE + "noise_scale = [0.0, 0.1]\nnoise_schedule = ['constant', 'linear']\n")
    tuned = found.run(6)
    refused = [trial for trial in tuned.trials if trial.changes == {**trial.changes, **_REFUSED}]
    assert refused
    for trial in tuned.trials:
        assert trial.state == ("pruned" if trial in refused else "complete")
        assert (trial.reason is not None) == (trial in refused)
    assert len(found.calls) == 6 - len(refused)
    assert "refused: noise_schedule='linear' lowers a noise_scale > 0" in report(found, tuned).text.read_text()


def test_a_trial_that_cannot_begin_is_pruned_with_the_reason(small):
    found = small(SPACE + "gamma = [0.5, 0.99]\n")

    def check(config):
        if config.gamma == 0.5:
            raise UsageError("no run begins with that")

    tuned = found.run(6, check=check)
    reasons = {trial.changes["gamma"]: (trial.state, trial.reason) for trial in tuned.trials}
    assert reasons == {0.5: ("pruned", "refused: no run begins with that"), 0.99: ("complete", None)}
    assert len(found.calls) == sum(trial.state == "complete" for trial in tuned.trials)


def test_diverged_trials_are_pruned_and_failed_ones_have_no_value(small):
    found = small(how={"diverge": ["trial-0001"], "fail": ["trial-0002"]}, seeds=2)
    tuned = found.run(4)
    assert [trial.state for trial in tuned.trials] == ["complete", "pruned", "failed", "complete"]
    assert "training diverged" in tuned.trials[1].reason
    assert tuned.trials[2].reason == "bad luck (status 3)"
    assert tuned.stopped is None
    assert len([call for call in found.calls if call[1] == "trial-0002"]) == 1  # its second seed is not started


def test_a_trial_whose_evaluations_are_lost_fails_and_names_the_file(small):
    """The run finished, but the command was killed before it noted that."""
    found = small(seeds=2)

    def killed(*arguments):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trials, "complete", killed)
        with pytest.raises(KeyboardInterrupt):
            found.run(1)
    lost = folders_of(found.root, [found.plan.trial(0, {})])[1].run / "evaluations.csv"
    lost.unlink()
    tuned = found.run(2)
    assert [trial.state for trial in tuned.trials] == ["failed", "complete"]
    assert tuned.trials[0].reason == f"{lost} has no evaluation, although the run has finished"


def test_three_failures_in_a_row_end_the_tuning(small):
    found = small(how={"fail": [f"trial-000{number}" for number in (1, 3, 4, 5)]})
    tuned = found.run(9, fresh_seeds=2)
    assert [trial.state for trial in tuned.trials] == ["complete", "failed", "complete", "failed", "failed", "failed"]
    assert tuned.stopped == "3 trials failed one after the other, the last with: bad luck (status 3)"
    assert tuned.compared == []
    assert "Stopped: 3 trials failed" in report(found, tuned).text.read_text()


def test_a_terminal_shows_a_bar_over_the_trials(small, monkeypatch, capsys):
    found = small()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    found.run(2, progress_bar=True)
    stderr = capsys.readouterr().err
    assert "2/2" in stderr
    assert "best 0" in stderr
    found.run(3)
    assert "3/3" not in capsys.readouterr().err


def test_the_best_trial_is_compared_on_fresh_seeds(small, monkeypatch):
    monkeypatch.setattr(tuning_report, "_history", DRAW)
    found = small(seeds=2, actor_learning_rate=0.02)
    tuned = found.run(4, fresh_seeds=3)
    trained = {(name, seed) for _, name, seed, _ in found.calls}
    fresh = {(name, seed) for name, seed in trained if not name.startswith("trial")}
    best = f"best-000{tuned.best.number}"
    assert fresh == {(name, seed) for name in (best, "preset") for seed in (1000, 1001, 1002)}
    assert {seed for name, seed in trained - fresh} == {0, 1}
    summary = report(found, tuned)
    assert summary.compared["preset"].mean == pytest.approx(-1.001)  # the preset's 1e-3 is optimal; minus seed / 1000
    assert summary.compared[best].mean == pytest.approx(score(tuned.best) - 1.001)
    assert summary.verdict.startswith(f"{best} does not beat the preset, it is worse: difference by seed ")
    assert summary.verdict.endswith("3 fresh seeds each.")
    with summary.comparison.open(newline="") as file:
        rows = {row["configuration"]: row for row in csv.DictReader(file)}
    assert float(rows["difference"]["mean"]) == pytest.approx(score(tuned.best))
    assert {*rows} == {best, "preset", "difference", "probability_of_improvement"}
    assert float(rows["probability_of_improvement"]["mean"]) == summary.comparison_of_best.improvement.mean == 0
    assert summary.figure.stat().st_size > 1000
    assert len(found.calls) == 8 + 6
    found.run(4, fresh_seeds=3)
    assert len(found.calls) == 8 + 6


@pytest.mark.slow
def test_a_comparison_of_an_earlier_best_trial_is_removed(small):
    found = small(actor_learning_rate=0.1)
    first = found.run(3, fresh_seeds=1)
    assert report(found, first).comparison == found.root / "comparison.csv"
    more = found.run(12)
    assert more.best.number != first.best.number
    assert report(found, more).comparison is None
    assert not (found.root / "comparison.csv").exists()


def test_results_are_written_in_long_form_and_the_report_uses_the_plural(small):
    """A trial's value is the mean over its seeds."""
    found = small(seeds=2)
    base = msgspec.structs.replace(found.plan.base, evaluation_episodes=3)
    found.plan = msgspec.structs.replace(found.plan, base=base)
    tuned = found.run(2)
    assert [seed for _, _, seed, _ in found.calls] == [0, 1] * 2
    assert [trial.value for trial in tuned.trials] == pytest.approx([score(trial) - 0.0005 for trial in tuned.trials])
    assert tuned.trials[0].returns[2] == pytest.approx((score(tuned.trials[0]) - 0.0005) * 2 / 5)
    sentence = "2 trials (2 complete) of 100 steps, each on seeds 0 to 1, evaluated every 20 steps over 3 episodes;"
    assert f"\n{sentence} sampler's seed 0." in report(found, tuned).text.read_text()
    rows = results(found)
    assert {*rows[0]} == {"trial", "state", "seed", "step", "measure", "value", "actor_learning_rate"}
    assert len(rows) == 2 * (2 * 5 + 1)
    assert [rows[0][name] for name in ("trial", "state", "seed", "step")] == ["0", "complete", "0", "20"]
    assert float(rows[10]["value"]) == tuned.trials[0].value
    assert (rows[10]["measure"], rows[10]["seed"], rows[10]["actor_learning_rate"]) == ("objective", "", "0.001")


@pytest.mark.slow
def test_train_accepts_best_toml(small):
    found = small(SPACE + "norm = ['none', 'layer']\n", gamma=0.5)
    tuned = found.run(4)
    file = report(found, tuned).best
    training = Train.parse(["Pendulum-v1", "--config", str(file)], "ddpg train")
    assert training.args[0] == DDPGConfig(hidden=(4,), learning_starts=0, gamma=0.5).replace(**tuned.best.changes)
    text = file.read_text()
    assert "# Found by: ddpg tune it\n" in text
    assert f"# Trial {tuned.best.number} of 4 (4 complete), on seed 0: mean evaluation return" in text
    assert "# Verdict: The best was not compared with the preset (--fresh-seeds 0).\n" in text
    told = report(found, dataclasses.replace(tuned, fresh_seeds=5))  # interrupted before the comparison
    assert told.verdict == "The best has not been compared with the preset yet."


@pytest.mark.parametrize(
    ("space", "sentence"),
    [(SPACE, "Trial 0 is the base configuration."), (SPACE.replace("1e-1", "1e-4"), "not tried.")],
)
def test_the_report_states_whether_the_base_configuration_was_tried(space, sentence, small):
    """Its learning rate is 1e-3."""
    found = small(space)
    text = report(found, found.run(1)).text.read_text()
    assert "\n1 trial (1 complete) of 100 steps, each on seed 0, evaluated every 20 steps over 1 episode;" in text
    assert f"{sentence}\n" in text
    assert "base configuration" in text


def test_best_toml_names_the_command_that_uses_it(small, monkeypatch):
    found = small()
    found.root = found.folder / "a tuning"
    base = msgspec.structs.replace(found.plan.base, wrappers=["FlattenObservation", "TimeAwareObservation"])
    found.plan = msgspec.structs.replace(found.plan, base=base)
    tuned = found.run(1)
    text = report(found, tuned).best.read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("# Use: ")]
    words = shlex.split(line.removeprefix("# Use: "))
    assert words[:2] == ["ddpg", "train"]
    monkeypatch.chdir("/")
    training = Train.parse(words[2:], "ddpg train")
    assert training.args[0] == DDPGConfig(hidden=(4,), learning_starts=0).replace(**tuned.best.changes)
    assert vars(training.func)["wrap"] == ("FlattenObservation", "TimeAwareObservation")
    assert vars(training.func)["total_timesteps"] == 100  # of a trial; the preset's would be 10,000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tuning_seed": 1}, "tuning_seed 0 1"),
        ({"seeds": 2}, "seeds [0] [0, 1]"),
        ({"gamma": 0.5}, "gamma 0.99 0.5"),
        ({"pruning": True}, "pruning False True"),
    ],
)
def test_a_folder_refuses_another_tuning(change, message, small):
    found = small()
    found.run(1)
    with refuses(UsageError, message, "--root"):
        found.run(2, plan=found.planned(**change))
    (found.folder / "space.toml").write_text(SPACE.replace("1e-1", "1e-2"))
    with refuses(UsageError, "actor_learning_rate"):
        found.run(2, plan=found.planned())
    assert len(found.calls) == 1


def test_a_tuning_and_a_study_are_not_of_one_folder(small):
    """Both would write its results.csv."""
    found = small()
    groups = [found.plan.base]
    (found.folder / "study.toml").write_text("")
    found.run(1)
    with refuses(UsageError, str(found.root), "tuning --root"):
        write_study(found.root, found.folder / "study.toml", groups)
    assert not (found.root / "study.json").exists()
    found.root = found.folder / "study"
    found.root.mkdir()
    write_study(found.root, found.folder / "study.toml", groups)
    with refuses(UsageError, str(found.root), "study --root"):
        found.run(1)
    assert not (found.root / "tuning.json").exists()


def test_a_tuning_from_before_an_option_existed_continues(small):
    found = small()
    found.run(1)
    path = found.root / "tuning.json"
    record = json.loads(path.read_text())
    del record["ground"]["options"]["overlap"], record["preset"]["overlap"]
    path.write_text(json.dumps(record))
    assert len(found.run(2).trials) == 2


def test_damaged_files_are_a_one_line_error(small):
    found = small()
    found.run(1)
    record = (found.root / "tuning.json").read_text()
    (found.root / "tuning.json").write_text(record.replace('"tuning_seed": 0', '"tuning_seed": -1'))
    with refuses(FileFault, "tuning_seed -1 --root"):
        found.run(2)
    (found.root / "tuning.json").unlink()
    with refuses(FileFault, "tuning.json"):
        found.run(2)
    with run_lock(found.root), refuses(UsageError, "in use"):
        found.run(2)


def test_seeds_of_trials_must_not_reach_those_of_the_comparison(small):
    with refuses(UsageError, "1000"):
        small(seeds=1001)


SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
from small_tunings import Tuning
import msgspec
import pytest
with pytest.MonkeyPatch.context() as patch:
    found = Tuning(Path({folder!r}), patch, how={how!r}, pruning=True)
    found.run({trials}, fresh_seeds=2, jobs={jobs})
"""


def start(found, trials, jobs=1, **how):
    """Start a tuning in another process."""
    tests = str(Path(__file__).parents[1])
    text = SCRIPT.format(tests=tests, folder=str(found.folder), how=how, trials=trials, jobs=jobs)
    return subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.PIPE, text=True)


def wait_for(holds, process=None):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 3])
def test_a_killed_tuning_ends_like_an_uninterrupted_one(kills, tmp_path, monkeypatch):
    straight, killed = (tmp_path / name for name in ("straight", "killed"))
    found = {}
    for folder in (straight, killed):
        folder.mkdir()
        found[folder] = Tuning(folder, monkeypatch, pruning=True)
    for kill in range(kills):
        process = start(found[killed], 7, seconds=0.15)
        wait_for(lambda n=2 + 2 * kill: len(found[killed].calls) >= n, process)
        process.kill()
        process.communicate()
    for folder in (straight, killed):
        found[folder].how(monkeypatch)
        report(found[folder], found[folder].run(7, fresh_seeds=2))
    for name in ("results.csv", "best.toml", "comparison.csv", "tuning.md"):
        written, expected = ((folder / "out" / name).read_text(encoding="utf-8") for folder in (killed, straight))
        assert written.replace(str(killed), str(straight)) == expected, name  # the text may contain the folder's path
    names = [tuple(call[1:3]) for call in found[killed].calls if call[0] == "train"]
    assert len(names) == len({*names})  # nothing was trained twice


@pytest.mark.slow  # test_scheduler.py has the same for a study
def test_a_killed_tuning_leaves_no_processes_and_resumes_at_once(small, monkeypatch):
    found = small(how={"seconds": 0.15})
    process = start(found, 1, seconds=0.15)
    wait_for(lambda: found.calls, process)
    process.kill()
    process.communicate()
    (cell_folder,) = folders_of(found.root, [found.plan.trial(0, {})])
    found.how(monkeypatch)
    tuned = found.run(1, plan=found.planned(pruning=True))
    assert [trial.state for trial in tuned.trials] == ["complete"]
    assert cell_folder.state == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_cells_save_and_names_the_resume_command(number, small, monkeypatch):
    found = small(how={"seconds": 0.2})
    process = start(found, 5, seconds=0.2)
    wait_for(lambda: found.calls, process)
    process.send_signal(number)
    stderr = process.communicate(timeout=60)[1]
    assert "0 of 5 trials are over; go on with: ddpg tune it" in stderr
    assert "trial-0000 seed 0: interrupted at step" in stderr
    tuned = found.run(2, plan=found.planned(pruning=True))
    assert [trial.state for trial in tuned.trials] == ["complete"] * 2
    assert [call[:2] for call in found.calls] == [
        ["train", "trial-0000"],
        ["resume", "trial-0000"],
        ["train", "trial-0001"],
    ]


@pytest.fixture
def command(small, monkeypatch):
    """Return a tuning, and a function that runs ``ddpg tune`` with the stub for its cells."""
    found = small()
    monkeypatch.setattr(WithEngine, "engine_choice", lambda self: EngineChoice(jobs=1, command=found.command))
    monkeypatch.chdir(found.folder)
    words = ["--total-timesteps", "100", "--evaluation-interval", "20", "--space", "space.toml", "--jobs", "1"]
    return found, lambda *more: main(["tune", "Pendulum-v1", *words, *more])


def test_the_command_writes_a_folder_and_prints_a_report(command, capsys):
    _, tune = command
    assert tune("--trials", "2", "--fresh-seeds", "2", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["trials"] == {"complete": 2}
    assert summary["best"]["trial"] == 0
    assert summary["verdict"] == "The best is the preset itself."
    folder = Path("tuning", "Pendulum-v1")
    assert summary["tuning"] == str(folder)
    assert {path.name for path in folder.iterdir() if path.is_file()} >= {"results.csv", "best.toml", "trials.journal"}
    assert tune("--trials", "2", "--fresh-seeds", "2") == 0
    out = capsys.readouterr().out
    assert "# DDPG in Pendulum-v1, tuned" in out
    assert (
        "`ddpg tune Pendulum-v1 --trials 2 --total-timesteps 100 --fresh-seeds 2 --space space.toml "
        "--evaluation-interval 20 --jobs 1`" in out
    )
    assert tune("--trials", "2", "--gamma", "1") == 2


@pytest.mark.filterwarnings("ignore:.*latest versioned")
def test_an_environment_may_be_named_without_its_version(command, capsys):
    words = ["--total-timesteps", "100", "--evaluation-interval", "20", "--space", "space.toml", "--trials", "1"]
    assert main(["tune", "Pendulum", *words, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["tuning"], summary["trials"]) == ("tuning/Pendulum-v1", {"complete": 1})


@pytest.mark.slow
def test_a_recipe_and_a_file_set_the_base_configuration(command, capsys):
    _, tune = command
    Path("own.toml").write_text("gamma = 0.5\n")
    assert tune("--trials", "1", "--recipe", "td3", "--config", "own.toml", "--storage", "there") == 0
    capsys.readouterr()
    record = json.loads(Path("there", "tuning.json").read_text())
    base = record["ground"]["options"]
    assert (base["n_critics"], base["gamma"]) == (2, 0.5)
    assert (record["preset"]["n_critics"], record["preset"]["gamma"]) == (1, 0.98)
    training = Train.parse(["Pendulum-v1", "--config", "there/best.toml"], "ddpg train")
    assert training.args[0].to_json() == base


def test_the_preset_is_adapted_to_the_length_of_a_trial(command, capsys):
    """Pendulum's preset has 1,000 random steps; a trial of 100 steps has 64, the size of a minibatch."""
    _, tune = command
    Path("own.toml").write_text("learning_starts = 5\n")
    usual = Train.parse(["Pendulum-v1", "--total-timesteps", "100"], "ddpg train").args[0].to_json()
    assert (usual["learning_starts"], usual["exploration_steps"]) == (64, 100)
    for words, starts in (([], 64), (["--config", "own.toml"], 5)):
        assert tune("--trials", "1", "--fresh-seeds", "0", "--root", f"{starts}", *words) == 0
        record = json.loads(Path(f"{starts}", "tuning.json").read_text())
        assert record["preset"] == usual
        assert record["ground"]["options"] == usual | {"learning_starts": starts}


def test_failures_set_the_exit_status_to_1(command, monkeypatch, capsys):
    found, tune = command
    found.how(monkeypatch, fail=["trial-0001", "preset"])
    assert tune("--trials", "2", "--fresh-seeds", "0") == 1
    assert "1 of 2 trials failed, 1 with: bad luck (status 3)" in capsys.readouterr().err
    Path("own.toml").write_text("gamma = 0.5\n")
    found.how(monkeypatch, fail=["preset"])
    assert tune("--trials", "1", "--fresh-seeds", "1", "--config", "own.toml", "--root", "b") == 1
    assert "1 cell of the comparison failed, Pendulum-v1 preset seed 1000 with: bad luck" in capsys.readouterr().err
    found.how(monkeypatch)
    assert tune("--trials", "1", "--fresh-seeds", "1", "--config", "own.toml", "--root", "b") == 0
    assert "One seed each does not show" in capsys.readouterr().out


def test_a_damaged_table_is_left_out_of_the_report(command, capsys):
    """The objective and the best trial come from the journal."""
    found, tune = command
    Path("own.toml").write_text("gamma = 0.5\n")
    words = ["--trials", "3", "--fresh-seeds", "1", "--config", "own.toml", "--root", str(found.root), "--json"]
    assert tune(*words) == 0
    before = json.loads(capsys.readouterr().out)
    whole = [row for row in results(found) if row["measure"] != "objective"]
    damaged = found.root / "trial-0001/0/Pendulum-v1/1/evaluations.csv"
    damaged.write_bytes(damaged.read_bytes()[:40] + b"\xff\0\n")
    assert tune(*words) == 4
    out, err = capsys.readouterr()
    after = json.loads(out)
    (line,) = after.pop("unread")
    assert str(damaged) in line
    assert line in err
    assert line in Path(after["files"]["text"]).read_text()
    assert after == {name: value for name, value in before.items() if name != "unread"}
    rows = results(found)
    assert [row for row in rows if row["measure"] != "objective"] == [row for row in whole if row["trial"] != "1"]
    assert [row["trial"] for row in rows if row["measure"] == "objective"] == ["0", "1", "2"]
    (lost,) = found.root.glob("best-*/1000/Pendulum-v1/1/evaluations.csv")
    lost.unlink()
    assert tune(*words) == 4
    after = json.loads(capsys.readouterr().out)
    assert [path in line for path, line in zip(map(str, (damaged, lost)), after["unread"], strict=True)] == [True] * 2
    assert (after["comparison"], [*after["compared"]]) == (None, ["preset"])


def test_a_file_that_cannot_be_written_says_what_is_kept_and_how_to_go_on(command, capsys):
    found, tune = command
    root = Path("tuning", "Pendulum-v1")
    root.mkdir(parents=True)
    goes_on = "with: ddpg tune Pendulum-v1 --trials 2 --total-timesteps 100 --fresh-seeds 0 "
    for place, make in ((root / "trial-0001", Path.touch), (root / "results.csv", Path.mkdir)):
        make(place)
        assert tune("--trials", "2", "--fresh-seeds", "0") == 4
        said = capsys.readouterr().err.splitlines()[-1]
        assert f"{place}" in said
        assert goes_on in said
        assert "nothing else" not in said
        place.unlink() if place.is_file() else place.rmdir()
    assert tune("--trials", "2", "--fresh-seeds", "0") == 0
    assert [call[1] for call in found.calls] == ["trial-0000", "trial-0001"]


@pytest.mark.parametrize(
    "words", [["--trials", "0"], ["--seeds", "0"], ["--tuning-seed", "-1"], ["--space", "none.toml"], ["--jobs", "0"]]
)
def test_bad_input_starts_nothing(words, command, capsys):
    found, tune = command
    assert tune(*words) == 2
    assert words[0].strip("-").replace("-", "_") in capsys.readouterr().err or words[0] == "--space"
    assert not Path("tuning").exists()
    assert not found.calls


@pytest.mark.parametrize(
    ("space", "says"),
    [
        ("hindsight = [0, 4]", "hindsight cannot be 4 here: hindsight=4 needs an environment with goals"),
        ("step_timeout = [1.0, 'none']", "step_timeout cannot be 1.0 here: step_timeout=1.0 needs environments in"),
        ("n_steps = [1, 10_000_000_000]", "n_steps cannot be 10000000000 here"),
        ("buffer_size = [10_000, 100_000_000_000]", "buffer_size cannot be 100000000000 here"),
        ("hidden = [[16, 16], [300_000, 300_000]]", "hidden cannot be [300000, 300000] here"),
    ],
)
def test_what_the_environment_or_the_memory_refuses_begins_nothing(space, says, command, capsys):
    found, tune = command
    Path("space.toml").write_text(space)
    assert tune() == 2
    assert says in capsys.readouterr().err
    assert not Path("tuning").exists()
    assert not found.calls


def test_a_base_configuration_that_cannot_begin_is_refused_unless_the_space_has_others(command, capsys):
    found, tune = command
    Path("own.toml").write_text("hindsight = 4\n")
    Path("space.toml").write_text("extend = true\n")
    assert tune("--config", "own.toml", "--trials", "1") == 2
    assert "hindsight=4 needs an environment with goals" in capsys.readouterr().err
    assert not Path("tuning").exists()
    Path("space.toml").write_text("hindsight = [0]\n")
    assert tune("--config", "own.toml", "--trials", "1", "--fresh-seeds", "0") == 0
    assert len(found.calls) == 1


def test_a_signal_while_the_space_is_checked_begins_nothing(command, monkeypatch, capsys):
    """A plan that is written could not change any more."""
    _, tune = command

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals._watching.came(60)
        return read_space(*arguments)

    monkeypatch.setattr("ddpg.studies.search_space.read_space", interrupted)
    assert tune() == 128 + signal.SIGTERM
    told = capsys.readouterr().err
    assert "SIGTERM: the command ends when it has checked its input" in told
    assert told.endswith("ddpg: interrupted: nothing was begun\n")
    assert not Path("tuning").exists()


def test_without_optuna_no_folder_is_made(tmp_path, monkeypatch):
    tuning = Tuning(tmp_path, monkeypatch)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with refuses(UsageError, "optuna"):
        tuning.run(1)
    assert not tuning.root.exists()


def test_without_optuna_nothing_is_started(command, monkeypatch, capsys):
    _, tune = command
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert tune() == 2
    assert capsys.readouterr().err == ("ddpg: error: ddpg tune needs the package 'optuna'; install the extra 'tune'\n")
    assert not Path("tuning").exists()


REAL = "hidden = [4]\nbatch_size = 8\nlearning_starts = 50\njit = false\n"


@pytest.mark.slow
def test_a_killed_real_tuning_ends_like_an_uninterrupted_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("ground.toml").write_text(REAL)
    words = ["tune", "ddpg_envs/LQR-v0", "--config", "ground.toml", "--trials", "2", "--total-timesteps", "300"]
    words += ["--evaluation-interval", "100", "--evaluation-episodes", "1", "--fresh-seeds", "1", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ddpg", *words, "--root", "killed"], stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: Path("killed", "trial-0001").exists(), process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    for root in ("killed", "straight"):
        assert main([*words, "--root", root, "--no-progress-bar"]) == 0
    for name in ("results.csv", "comparison.csv"):
        assert Path("killed", name).read_bytes() == Path("straight", name).read_bytes(), name
    training = ["train", "ddpg_envs/LQR-v0", "--config", "killed/best.toml", "--total-timesteps", "100", "--seed", "0"]
    capsys.readouterr()
    assert main([*training, "--json", "--no-progress-bar"]) == 0
    options = json.loads(Path("runs/ddpg_envs/LQR-v0/1/config.json").read_text())["config"]
    assert options == DDPGConfig(**from_toml(DDPGConfig, read_toml("killed/best.toml"), "it")).to_json()
