"""A study's file: validation, the cells that it defines, and the settings that must not change in its folder."""

import contextlib
import errno
import os

import gymnasium as gym
import msgspec
import pytest
from refusals import refuses

from ddpg import DDPGConfig, UsageError
from ddpg.cli.train import Train
from ddpg.config.options import as_toml, from_toml
from ddpg.config.presets import preset_config
from ddpg.config.toml_file import read_toml
from ddpg.runs.lock import lock_cell_log
from ddpg.studies.study import FILES, Cell, cells_of, read_study
from ddpg.studies.study_folder import CellFolder, check_same, read_cells, write_study
from tests.small_studies import train_by_hand

FULL_STUDY = """
seeds = 2
total_timesteps = 500
evaluation_episodes = 3
n_envs = 2

[environments.Pendulum-v1]

[environments."ddpg_envs/LQR-v0"]
seeds = [5]
total_timesteps = 40
configurations = ["slow"]
wrappers = ["TimeAwareObservation"]
env_kwargs = { max_episode_steps = 9 }

[configurations]
td3 = "td3"
own = "own.toml"

[configurations.slow]
actor_learning_rate = 1e-5
gamma = "none"

[configurations.deeper]
recipe = "td3"
hidden = [8, 8, 8]
"""


def study_file(folder, text):
    path = folder / "study.toml"
    path.write_text(text)
    return path


def test_cells_are_environments_by_configurations_by_seeds(tmp_path):
    (tmp_path / "own.toml").write_text("batch_size = 7\nmax_gradient_norm = 'none'\n")
    groups = read_study(study_file(tmp_path, FULL_STUDY))
    assert [(group.name, group.configuration, group.seeds) for group in groups] == [
        ("Pendulum-v1", "td3", [0, 1]),
        ("Pendulum-v1", "own", [0, 1]),
        ("Pendulum-v1", "slow", [0, 1]),
        ("Pendulum-v1", "deeper", [0, 1]),
        ("ddpg_envs/LQR-v0", "slow", [5]),
    ]
    td3, own, slow, deeper, lqr = groups
    assert [group.total_timesteps for group in groups] == [500] * 4 + [40]
    # Of LQR two whole episodes of 9 steps in each of two environments.
    assert [group.evaluation_interval for group in groups] == [500] * 4 + [36]
    assert {(group.evaluation_episodes, group.n_envs) for group in groups} == {(3, 2)}
    assert (td3.wrappers, lqr.wrappers) == ([], ["TimeAwareObservation"])
    assert (td3.env_kwargs, lqr.env_kwargs) == ({}, {"max_episode_steps": 9})
    # A recipe or a file replaces the preset; a table changes the preset, or the recipe that it names.
    assert own.options == DDPGConfig(batch_size=7).to_json()
    short = {"learning_starts": 64, "exploration_steps": 500}  # the preset's, for so few steps
    assert slow.options == preset_config("Pendulum-v1", actor_learning_rate=1e-5, gamma=None, **short).to_json()
    assert td3.options["n_critics"] == 2
    assert deeper.options == td3.options | {"hidden": [8, 8, 8]}


COLLECTED = """
environments = ["Pendulum-v1"]
collector = "process"
workers = 3
[configurations]
studys = {}
fewer = { workers = 2 }
own = { collector = "local", tau = 0.1 }
"""


def test_a_configuration_may_set_its_own_workers(tmp_path):
    groups = read_study(study_file(tmp_path, COLLECTED))
    assert [(group.collector, group.workers) for group in groups] == [("process", 3), ("process", 2), ("local", None)]
    assert groups[2].options == preset_config("Pendulum-v1", tau=0.1).to_json()
    assert groups[0].options == preset_config("Pendulum-v1").to_json()
    # Folders of earlier versions, without these settings, stay valid.
    root = tmp_path / "out"
    root.mkdir()
    write_study(root, tmp_path / "study.toml", groups[2:])
    noted = (root / "study.json").read_text()
    assert '"collector": "local", "workers": null, ' in noted
    (root / "study.json").write_text(noted.replace('"collector": "local", "workers": null, ', ""))
    check_same(root, read_cells(root), groups)


def test_the_first_seeds_of_all_groups_come_first(tmp_path):
    (tmp_path / "own.toml").write_text("")
    cells = cells_of(read_study(study_file(tmp_path, FULL_STUDY)))
    assert [cell.seed for cell in cells] == [0, 0, 0, 0, 5, 1, 1, 1, 1]
    assert str(cells[1]) == "Pendulum-v1 own seed 0"


def test_without_configurations_the_preset_is_trained(tmp_path):
    (group,) = read_study(study_file(tmp_path, "environments = ['Pendulum-v1']"))
    assert (group.configuration, group.options) == ("preset", preset_config("Pendulum-v1").to_json())
    assert (group.total_timesteps, group.seeds) == (10_000, [0])


SHORT = """
environments = ["Pendulum-v1"]
total_timesteps = 2_000
[configurations]
preset = {}
late = { learning_starts = 700 }
ddpg = "ddpg"
"""


def test_a_short_study_adapts_the_preset_as_train_does(tmp_path):
    """Pendulum's preset has 1,000 random steps and explores for all 10,000; 2,000 steps have 200 and 2,000 of these."""
    preset, late, recipe = (group.options for group in read_study(study_file(tmp_path, SHORT)))
    assert preset == preset_config("Pendulum-v1", learning_starts=200, exploration_steps=2_000).to_json()
    assert preset == Train.parse(["Pendulum-v1", "--total-timesteps", "2000"], "ddpg train").args[0].to_json()
    assert late == preset | {"learning_starts": 700}
    assert recipe["learning_starts"] == DDPGConfig().learning_starts == 1_000


def test_a_folder_with_other_preset_options_is_refused_in_one_line(tmp_path):
    """For example a folder of a version that did not adapt the preset to the length of the run."""
    path = study_file(tmp_path, SHORT)
    (preset, *_) = groups = read_study(path)
    old = msgspec.structs.replace(preset, options=preset.options | {"learning_starts": 1_000})
    write_study(tmp_path, path, [old])
    train_by_hand(CellFolder(tmp_path, Cell(old, 0)), [])
    with refuses(UsageError, "learning_starts of 'preset' in Pendulum-v1 was 1000 and is now 200", "--root") as caught:
        write_study(tmp_path, path, groups)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*latest versioned")
def test_an_environment_may_be_named_without_its_version(tmp_path):
    """gymnasium takes the newest version, which determines the run's folder and the preset."""
    assert read_study(study_file(tmp_path, "environments = ['Pendulum']")) == read_study(
        study_file(tmp_path, "environments = ['Pendulum-v1']")
    )
    (group,) = read_study(study_file(tmp_path, "environments = ['gymnasium:Pendulum']"), ["gymnasium"])
    assert group.env_id == "gymnasium:Pendulum-v1"
    with refuses(UsageError, "Pendulum-v1"):
        read_study(study_file(tmp_path, "environments = ['Pendulum', 'Pendulum-v1']"))


ENVS = "environments = ['Pendulum-v1']\n"


def test_environments_in_processes_may_have_a_step_timeout(tmp_path):
    settings = ENVS + "n_envs = 2\nvectorization = 'async'\nconfigurations.a.step_timeout = 5.0"
    (group,) = read_study(study_file(tmp_path, settings))
    assert group.options["step_timeout"] == 5.0


def test_options_round_trip_through_a_file(tmp_path):
    config = DDPGConfig(hidden=(3, 5), gamma=None, norm="layer", target_policy_noise=1e-7, jit=False)
    path = study_file(tmp_path, as_toml(config.to_json()))
    assert DDPGConfig(**from_toml(DDPGConfig, read_toml(path), "it")) == config


@pytest.mark.parametrize(
    ("text", "interval"),
    [("", 500), ("n_envs = 4", 1600), ("n_envs = 4\nevaluation_interval = 700", 700), ("n_envs = 40", 10_000)],
)
def test_the_default_evaluation_interval_lets_a_vectors_episodes_end(text, interval, tmp_path):
    """As in ``ddpg train``. Pendulum's preset trains 10,000 steps, in episodes of 200."""
    (group,) = read_study(study_file(tmp_path, ENVS + text))
    assert group.evaluation_interval == interval


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "cell"),
        (ENVS + "sedes = 3", "sedes 'seeds'"),
        (ENVS + "configurations.a.hindsight = 4", "'a' Pendulum-v1 hindsight=4"),
        (ENVS + "configurations.a.step_timeout = 5.0", "'a' Pendulum-v1 step_timeout=5.0 async"),
        (ENVS + "n_envs = 2\nconfigurations.a.step_timeout = 5.0", "'a' Pendulum-v1 step_timeout=5.0 async"),
        (ENVS + "configurations.a.priority_correction_steps = 10_000_000_000", "'a' 10000000000 2147483647"),
        (ENVS + "seeds = 0", "seeds=0 1 10000 [0]"),
        (ENVS + "seeds = -2", "seeds=-2 1 10000"),
        ("[environments.Pendulum-v1]\nseeds = 0", "Pendulum-v1 seeds=0 1 [0]"),
        (ENVS + "seeds = []", "seeds"),
        (ENVS + "seeds = [1, 1]", "seeds"),
        (ENVS + "seeds = [-1]", "seeds"),
        (ENVS + "seeds = true", "seeds"),
        (ENVS + "seeds = 1000000000", "seeds=1000000000 10000 [1000000000]"),  # refused before a list is made
        (
            ENVS + "seeds = 10000\n[configurations]\n" + "\n".join(f"c{i} = {{}}" for i in range(11)),
            "100000 cells",
        ),
        (ENVS + "total_timesteps = 0", "total_timesteps 0 1"),
        (ENVS + "total_timesteps = 9007199254740993", "total_timesteps 9007199254740993 9007199254740992"),
        (ENVS + "evaluation_interval = 9007199254740993", "evaluation_interval 9007199254740993 9007199254740992"),
        (ENVS + "evaluation_episodes = 100001", "evaluation_episodes 100001 100000"),
        (ENVS + "final_episodes = -1", "final_episodes -1 0"),
        (ENVS + "evaluation_episodes = 'none'", "evaluation_episodes"),
        (ENVS + "n_envs = 0", "n_envs 0"),
        (ENVS + "vectorization = 'asinc'", "'async'"),
        (ENVS + "vectorization = 'async'", "several"),
        (ENVS + "wrappers = 'FlattenObservation'", "list names"),
        (ENVS + "wrappers = ['FlattenObservations']", "'FlattenObservation'"),
        (ENVS + "env_kwargs = {gravity = 3}", "Pendulum-v1 gravity"),
        (ENVS + "env_kwargs = {g = nan}", "g nan"),
        (ENVS + "env_kwargs = ['g']", "g NAME=VALUE"),
        ("environments = 3", "list ids"),
        ("environments = ['Pendulum-v2']", "'Pendulum-v1'"),
        ("environments = ['module:Pendulum-v1']", "--allow-import module"),
        ("environments = ['zoo:Pendulum-v1']", "its own id, such as Pendulum-v1"),
        ("environments = ['Pendulum-v1', 'pendulums:Pendulum-v1']", "Pendulum-v1"),
        ("[environments.Pendulum-v1]\nsteps = 3", "Pendulum-v1 steps"),
        (
            "[environments.Pendulum-v1]\nconfigurations = ['a', 'a']\n[configurations]\na = {}",
            "configurations",
        ),
        ("[environments.Pendulum-v1]\nconfigurations = ['a']", "a"),
        (ENVS + "configurations = ['td3']", "table"),
        (ENVS + "[configurations]", "configurations empty preset"),
        (ENVS + "configurations = {'a/b' = {}}", "a/b"),
        (ENVS + "configurations = {a = 3}", "a 3"),
        (ENVS + "configurations = {a = 'td4'}", "recipe td4 'td3'"),
        (ENVS + "configurations = {a = {recipe = 3}}", "recipe 3"),
        (ENVS + "configurations = {a = {batchsize = 3}}", "a Pendulum-v1 'batch_size'"),
        (ENVS + "configurations = {a = {tau = 2.0}}", "a Pendulum-v1 tau 2.0 0 1"),
        (ENVS + "collector = 'proces'", "'process'"),
        (ENVS + "workers = 2", "workers 2 collector process"),
        (ENVS + "collector = 'process'", "collector process"),
        (ENVS + "configurations = {a = {workers = 2}}", "a Pendulum-v1 workers 2"),
        (ENVS + "configurations = {a = {workers = 'two'}}", "a Pendulum-v1 workers"),
        (ENVS + "collector = 'process'\nworkers = 2\nn_envs = 2", "n_envs 2"),
        ("environments = ['CartPole-v1']\nconfigurations = {a = 'td3'}", "a CartPole-v1"),
    ],
)
def test_invalid_studies_are_refused(text, match, tmp_path):
    with refuses(UsageError, match) as caught:
        read_study(study_file(tmp_path, text))
    assert str(caught.value).count("study.toml") == 1


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("seeds = '3'", "seeds='3' 3 [3]"),
        ("seeds = 3.0", "seeds=3.0 3 [3]"),
        ("seeds = ['3']", "seeds=['3'] 3 [3]"),
        ("collector = 'process'", "collector='process' workers=4"),
        ("configurations = {a = {workers = 2}}", "workers=2 'process' 'ray'"),
        ("configurations = {a = {seeds = 3}}", "'seeds' above tables"),
        ("configurations = {a = {final_episodes = 3}}", "'final_episodes' above tables"),
        ("configurations = {a = {wrappers = []}}", "'wrappers' above tables"),
    ],
)
def test_advice_fits_a_study_file(text, match, tmp_path):
    """It names no flags, and does not list all options for a key that belongs above the tables."""
    with refuses(UsageError, match) as caught:
        read_study(study_file(tmp_path, ENVS + text))
    assert "--" not in str(caught.value)
    assert "batch_size" not in str(caught.value)


@pytest.mark.parametrize("name", [*FILES, "Table.csv"])
def test_a_configuration_is_not_named_like_a_file_of_the_study(name, tmp_path):
    with refuses(UsageError, f"configuration {name!r} folder file"):
        read_study(study_file(tmp_path, f"{ENVS}[configurations]\nplain = {{}}\n'{name}' = {{}}\n"))


def test_configurations_that_differ_only_in_case_are_refused(tmp_path):
    """On macOS and Windows their cells would share a folder."""
    with refuses(UsageError, "configurations 'ReLU' 'relu'"):
        read_study(study_file(tmp_path, f"{ENVS}[configurations]\nReLU = {{}}\nother = {{}}\nrelu = {{}}\n"))


def test_a_list_of_numbers_in_place_of_names_is_refused_without_the_advice_to_write_just_that(tmp_path):
    with refuses(UsageError, "wrappers [3] list str") as caught:
        read_study(study_file(tmp_path, ENVS + "wrappers = [3]"))
    assert "TOML" not in str(caught.value)


def test_names_are_limited_to_the_length_of_folder_names(tmp_path):
    """In bytes (``ä`` has two); each part of an environment's id is a folder."""
    longest = "a" + 127 * "ä"
    text = "[configurations]\n'{}' = {{}}\n"
    (group,) = read_study(study_file(tmp_path, ENVS + text.format(longest)))
    assert group.configuration == longest
    with refuses(UsageError, "configuration 256 bytes 255"):
        read_study(study_file(tmp_path, ENVS + text.format(f"{longest}b")))
    for folder, name in (("a" * 200, "b" * 252), ("a" * 200, "b" * 253), ("a" * 256, "b")):
        env_id = f"{folder}/{name}-v0"
        gym.register(env_id, "gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=5)
        path = study_file(tmp_path, f"environments = ['{env_id}']\n")
        if len(name) == 252:
            assert read_study(path)[0].name == env_id
        else:
            with refuses(UsageError, "environment 256 bytes 255"):
                read_study(path)


def test_a_folder_accepts_added_cells_and_no_other_change(tmp_path):
    (tmp_path / "own.toml").write_text("")
    root = tmp_path / "out"
    root.mkdir()
    path = study_file(tmp_path, FULL_STUDY)
    groups = read_study(path)
    write_study(root, path, groups[:3])
    assert read_cells(root) == groups[:3]
    write_study(root, path, groups)
    assert read_cells(root) == groups
    assert (root / "study.toml").read_text() == FULL_STUDY

    changed = msgspec.structs.replace
    first = groups[0]
    for other, match in (
        (changed(first, total_timesteps=501), "total_timesteps td3 Pendulum-v1 500 501"),
        (changed(first, evaluation_interval=7), "evaluation_interval evaluation_interval = 500 goes on"),
        (changed(first, options=first.options | {"tau": 0.5}), "tau td3 Pendulum-v1 0.005 0.5"),
        (changed(first, seeds=[0, 2]), "seed 1 td3"),
        (changed(first, configuration="td4"), "td3 Pendulum-v1"),
    ):
        with refuses(UsageError, match):
            check_same(root, groups, [other, *groups[1:]])
    check_same(root, groups, [changed(first, seeds=[2, 1, 0]), *groups[1:]])
    # An option that is newer than the folder had its default value.
    check_same(root, [changed(first, options={n: v for n, v in first.options.items() if n != "atoms"})], groups)


def test_cells_without_a_run_may_change(tmp_path):
    """Such as those of a study that was interrupted while its first cells were starting."""
    path = study_file(tmp_path, FULL_STUDY)
    (tmp_path / "own.toml").write_text("")
    first, *others = groups = read_study(path)
    root, longer = tmp_path / "out", msgspec.structs.replace(first, total_timesteps=501)
    cell_folder = CellFolder(root, Cell(first, first.seeds[1]))
    cell_folder.path.mkdir(parents=True)
    cell_folder.failed.write_text('{"why": "no disk"}')
    write_study(root, path, groups)
    write_study(root, path, [longer, *others])
    assert read_cells(root)[0].total_timesteps == 501
    (root / ".slurm").mkdir()  # a job may wait, which holds the old options
    with refuses(UsageError, "total_timesteps"):
        write_study(root, path, groups)
    (root / ".slurm").rmdir()
    with contextlib.closing(lock_cell_log(cell_folder.log)), refuses(UsageError, "total_timesteps"):
        write_study(root, path, groups)
    train_by_hand(CellFolder(root, Cell(longer, first.seeds[1])), [])
    with refuses(UsageError, "total_timesteps"):
        write_study(root, path, groups)


def test_a_study_resumes_from_its_own_copy(tmp_path, monkeypatch):
    root = tmp_path / "out"
    root.mkdir()
    path = tmp_path / "study.toml"
    path.write_bytes("environments = ['Pendulum-v1']\r\n# naïve\n".encode())
    groups = read_study(path)
    write_study(root, path, groups)
    copy = root / "study.toml"
    assert copy.read_bytes() == path.read_bytes()
    begun = copy.stat()
    write_study(root, copy, read_study(copy))
    assert os.path.samestat(copy.stat(), begun)
    # A failed write leaves the copy intact.
    path.write_text("environments = ['Pendulum-v1']\n")
    monkeypatch.setattr("os.fsync", raise_no_space)
    with refuses(OSError, "study.toml"):
        write_study(root, path, groups)
    assert os.path.samestat(copy.stat(), begun)
    assert "naïve" in copy.read_text(encoding="utf-8")
    assert {entry.name for entry in root.iterdir()} == {"study.toml", "study.json"}


def raise_no_space(_):
    raise OSError(errno.ENOSPC, "no space left on device")


def test_a_damaged_folder_is_refused(tmp_path):
    with refuses(UsageError, "study"):
        read_cells(tmp_path)
    (tmp_path / "study.json").write_text('{"format": 1, "groups": [3]}')
    with refuses(UsageError, "study.json"):
        read_cells(tmp_path)
