"""Making zoo entries from finished runs of presets, and the zoo's page from the entries."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from refusals import refuses

import ddpg
from benchmarks import marks
from benchmarks.zoo import entries, page
from benchmarks.zoo.__main__ import main
from ddpg.config.presets import PRESETS, preset_config
from ddpg.errors import UsageError
from ddpg.exports import zoo
from ddpg.exports.numpy_policy import load_policy
from ddpg.runs.saved_policy import differences_here
from ddpg.studies.study import read_study

ROOT = Path(__file__).parents[2]
SHORT = {"seed": 0, "evaluation_interval": 1_000, "evaluation_episodes": 1, "progress_bar": False}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with a short finished run of a preset."""
    root = tmp_path_factory.mktemp("runs")
    ddpg.train("ddpg_envs/LQR-v0", total_timesteps=1_100, root=root, **SHORT)
    return root


@pytest.mark.slow
def test_a_finished_run_becomes_an_entry(root, tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "EPISODES", 4)
    assert [*entries.add_finished(root, tmp_path)] == ["LQR-v0: added"]
    assert [*entries.add_finished(root, tmp_path)] == ["LQR-v0: has an entry"]
    entry = zoo.read_entry("LQR-v0", tmp_path)
    assert sorted(path.name for path in entry.folder.iterdir()) == sorted(zoo.FILES)
    card = entry.card
    assert card.env_id == "ddpg_envs/LQR-v0"
    assert card.command == "ddpg train ddpg_envs/LQR-v0 --seed 0 --total-timesteps 1100"
    assert (card.timesteps, card.seed, card.evaluation.seed, len(card.evaluation.returns)) == (1_100, 0, 2_000_000, 4)
    assert not differences_here(card)
    agent = ddpg.DDPG.load(root / "ddpg_envs" / "LQR-v0" / "1")
    observation = np.array([0.5], np.float32).repeat(agent.observation_space.shape[0])
    action = load_policy(entry.folder).predict(observation)[0]
    np.testing.assert_allclose(action, agent.predict(observation, deterministic=True)[0], rtol=0, atol=1e-6)


@pytest.mark.slow
def test_an_entry_can_be_replaced(root, tmp_path, monkeypatch):
    for episodes in (2, 3):
        monkeypatch.setattr(entries, "EPISODES", episodes)
        assert [*entries.add_finished(root, tmp_path, replace=True)] == ["LQR-v0: added"]
        assert len(zoo.read_entry("LQR-v0", tmp_path).card.evaluation.returns) == episodes


def test_unfinished_runs_are_skipped(root, tmp_path):
    for config in root.rglob("config.json"):
        folder = tmp_path / "run"
        folder.mkdir()
        (folder / "config.json").write_bytes(config.read_bytes())
    assert [*entries.add_finished(tmp_path, tmp_path / "zoo")] == ["LQR-v0: not finished"]
    assert zoo.names(tmp_path / "zoo") == []


def test_runs_with_other_options_are_refused(root, tmp_path):
    config = next(root.rglob("config.json"))
    document = json.loads(config.read_bytes())
    assert entries.command_of(document).startswith("ddpg train")
    for change, words in (
        ({"config": document["config"] | {"tau": 0.5}}, "ddpg_envs/LQR-v0 tau"),
        ({"n_envs": 2}, "n_envs"),
        ({"wrappers": ["TimeAwareObservation"]}, "wrappers"),
        ({"env_kwargs": {"max_episode_steps": 5}}, "env_kwargs"),
    ):
        with refuses(UsageError, words):
            entries.command_of({"wrappers": [], "env_kwargs": {}} | document | change)


def test_the_command_leaves_out_the_preset_s_number_of_steps(root):
    document = json.loads(next(root.rglob("config.json")).read_bytes()) | {"wrappers": [], "env_kwargs": {}}
    usual = {"env_id": "ddpg_envs/LQR-v0", "total_timesteps": 10_000, "seed": 3}
    options = {"config": preset_config("ddpg_envs/LQR-v0").to_json()}
    assert entries.command_of(document | usual | options) == "ddpg train ddpg_envs/LQR-v0 --seed 3"


def test_the_studies_have_every_preset_once():
    names = [
        group.env_id
        for group in read_study(ROOT / "benchmarks" / "zoo" / "presets.toml")
        if group.seeds == [0] and group.configuration == "preset"
    ]
    assert len(names) == len({*names})
    assert {*PRESETS} - {*names} == {*page.ELSEWHERE}


def test_the_command_fills_the_page_with_a_row_for_every_entry(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGE", tmp_path / "zoo.md")
    page.PAGE.write_text("# Zoo\n<!-- zoo: begin -->\n<!-- zoo: end -->\n")
    assert main([]) == 0
    text = marks.between(page.PAGE.read_text(encoding="utf-8"), "zoo")
    for name in zoo.names():
        assert f"\n| {name} | " in text


def test_an_error_is_printed_as_one_line(tmp_path, monkeypatch, capsys):
    def failing(*_, **__):
        raise UsageError("the run of X differs from its preset")

    monkeypatch.setattr(entries, "add_finished", failing)
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == "error: the run of X differs from its preset\n"


@pytest.mark.slow
def test_the_picture_shows_moments_of_an_episode(tmp_path, monkeypatch):
    """At the start, after 5, 15 and 40 % of its steps, and at the end; Goal's episode has 1 step, Platform's 10."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    entries_drawn = [zoo.read_entry(name) for name in ("Pendulum-v1", "Goal-v0", "Platform-v0")]
    assert [len(page._moments(entry)) for entry in entries_drawn] == [5, 2, 4]
    monkeypatch.setattr(zoo, "names", lambda *_: ["Goal-v0", "Platform-v0", "LQR-v0"])
    page.draw(tmp_path / "zoo.png")
    with Image.open(tmp_path / "zoo.png") as picture:
        strips = [page._strip(zoo.read_entry(name)) for name in zoo.names()]
        assert {strip.size for strip in strips} == {(picture.width // 2, picture.height // 2)}


def test_the_page_shows_the_picture():
    assert page.PICTURE.stat().st_size < 300_000
    assert "(zoo.png)" in page.PAGE.read_text(encoding="utf-8")
