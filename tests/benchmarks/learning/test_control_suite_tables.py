"""The control suite's tables: groups and tasks, finished seeds, and published values."""

import pytest
from learning_cells import ROOT, cell

from benchmarks.learning import control_suite
from ddpg.config.toml_file import read_toml
from ddpg_envs.control_suite import TASKS

EASY = control_suite.GROUPS["easy"]


def run(task, recipe, seed, final, asked=None):
    return cell("dmc", control_suite.env_id(task), recipe, seed, [1, final], asked=asked)


@pytest.fixture
def values(tmp_path):
    path = tmp_path / "published.csv"
    lines = ["method,group,task,steps,value,seeds,source"]
    for place, task in enumerate(EASY):
        lines += [f"A,easy,{task},100000,{100 * place},3,x", *([f"B,easy,{task},100000,7,3,x"] if place else [])]
    path.write_text("\n".join([*lines, "C,hard,,100000,12.6,,y"]) + "\n")
    return path


def test_the_study_has_all_tasks_of_the_groups():
    study = read_toml(ROOT / "benchmarks" / "learning" / "dmc.toml")
    tasks = [task for names in control_suite.GROUPS.values() for task in names]
    assert study["environments"] == [control_suite.env_id(task) for task in tasks]
    assert [len(names) for names in control_suite.GROUPS.values()] == [9, 12, 7]
    assert {*tasks} <= {f"{domain}-{task}" for domain, own in TASKS.items() for task in own}
    assert {*control_suite.SWING_UPS} == {task for task in tasks if "swingup" in task}
    assert (study["seeds"], 2 * study["total_timesteps"]) == ([6001, 6002, 6003], 100_000)
    assert (*study["configurations"],) == control_suite.CONFIGURATIONS
    assert {one["learning_starts"] for one in study["configurations"].values()} == {2_500}


def test_a_published_mean_needs_every_task_of_its_group(values):
    """A has 0, 100 ... 800; B lacks a task; C has only the mean of a group."""
    tasks, means = control_suite.published(values)
    assert means == {"A": {"easy": 400.0}, "C": {"hard": 12.6}}
    assert tasks["A"]["walker-walk"] == 800
    rows = control_suite.by_group([], values).splitlines()
    assert rows[0] == "|  | easy, 9 tasks | medium, 12 tasks | hard, 7 tasks |"
    assert rows[2:] == [
        *("| A | 400 |  |  |", "| C |  |  | 13 |"),
    ]


def test_our_values_are_means_over_tasks_of_means_over_finished_seeds(values):
    cells = [
        *(run("walker-walk", "plus", seed, final) for seed, final in ((1, 100), (2, 300))),
        *(run("finger-spin", "plus", 1, 500), run("finger-spin", "plus", 2, 9, asked=1000)),
        run("walker-walk", "td3", 1, 9, asked=1000),
    ]
    assert "plus" not in control_suite.by_group(cells, values)
    cells += [run(task, "plus", 1, 50) for task in EASY if task not in ("walker-walk", "finger-spin")]
    assert f"| `plus` | {(200 + 500 + 7 * 50) / 9:.0f} (1 to 2 of 2 seeds) |  |  |" in (
        control_suite.by_group(cells, values)
    )
    whole = [run(task, "td3", 1, 10 * place) for place, task in enumerate(EASY)]
    assert "| `td3` | 40 (1 seed) |  |  |" in control_suite.by_group(whole, values)


def test_a_task_s_row_has_the_number_of_seeds():
    cells = [
        *(run("cheetah-run", "plus", 1, 600), run("cheetah-run", "plus", 2, 9, asked=1000)),
        *(run("cheetah-run", "preset", seed, final) for seed, final in ((1, 100), (2, 300))),
        run("cheetah-run", "td3", 1, 500),
        run("pendulum-swingup", "plus", 1, 700),
    ]
    tasks = control_suite.by_task(cells)
    ours = "200 (100 to 300; 2 seeds) | none yet | 600 (1 of 2 seeds)"
    assert f"| cheetah-run | medium | {ours} | 642 | 648 | 519 | 178 |" in tasks
    assert "swingup" not in tasks
    apart = control_suite.by_task(cells, swing_ups=True).splitlines()
    assert [line.split(" | ")[0] for line in apart[2:]] == [
        *("| cartpole-swingup", "| pendulum-swingup", "| acrobot-swingup", "| cartpole-swingup_sparse")
    ]
    assert apart[3].startswith("| pendulum-swingup | easy | none yet | none yet | 700 (1 seed) | ")
    assert control_suite.by_task([]) == "No runs of the study `dmc` yet."


def test_every_published_value_names_its_source():
    lines = control_suite.PUBLISHED.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 200
    assert all(line.rpartition(",")[2].strip() for line in lines)
