"""The report at the end of ``ddpg train`` and ``ddpg resume``, and ``ddpg train --seeds``."""

import re

import pytest
from refusals import lacking

from ddpg.checkpoints import target_dir
from ddpg.cli.command import Answer
from ddpg.cli.main import main
from ddpg.cli.studies import Study
from ddpg.cli.train import report_on
from ddpg.config.presets import preset_config
from ddpg.runs import run_config
from ddpg.studies.study import read_study


def test_the_speed_of_a_resumed_run_covers_all_its_processes(tmp_path):
    """120 steps in 5 s, of which 1 s compiling: 30 steps/s, whatever the last process reached."""
    config = {"env_id": "X-v0", "algorithm": "ddpg", "seed": 0, "total_timesteps": 120, "evaluation_interval": 60}
    config |= {"evaluation_episodes": 1, "n_envs": 1, "vectorization": "sync"}
    (tmp_path / "checkpoints" / "120").mkdir(parents=True)
    (tmp_path / "checkpoints" / "120" / target_dir.MANIFEST).touch()
    run_config.write(tmp_path, config | {"config": {}, "versions": {}, "command": []})
    (tmp_path / "metrics.csv").write_text("timesteps,seconds,compile_seconds,fps\n60,2,0.5,40\n120,5,1,90\n")
    (tmp_path / "evaluations.csv").write_text("timesteps,episodes,mean_return\n120,1,-2.5\n")
    report = report_on(tmp_path)
    assert report.values["steps_per_second"] == 30
    assert "5.0 s of training (1.0 s of them compiling), 30 steps/s" in report.text
    run_config.write(tmp_path, config | {"config": {}, "versions": {}, "command": [], "dataset": "data.npz"})
    text = report_on(tmp_path).text  # from data alone, a timestep is an update
    assert re.search("after 120 updates, .* 30 updates/s", text)


def test_several_seeds_are_a_study_of_one_configuration(tmp_path, monkeypatch, capsys):
    """Its options are the preset's and the flags', as for a single run; the environment's wrapper and argument too."""
    begun = []
    monkeypatch.setattr(Study, "__call__", lambda study: begun.append(study) or Answer({}, ""))
    options = "--gamma 0.5 --total-timesteps 9000 --evaluation-episodes 3 --n-envs 2 --wrap TimeAwareObservation"
    command = ["train", "Pendulum-v1", "--seeds", "3", "--seed", "5", *options.split(), "--env-kwargs", "g=5"]
    assert main([*command, "--root", str(tmp_path)]) == 0
    assert str(tmp_path / "Pendulum-v1" / "seeds") in capsys.readouterr().out
    (study,) = begun
    assert study.root == str(tmp_path / "Pendulum-v1" / "seeds")
    (group,) = read_study(study.study)
    assert (group.env_id, group.seeds, group.total_timesteps) == ("Pendulum-v1", [5, 6, 7], 9000)
    assert (group.evaluation_episodes, group.n_envs, group.wrappers) == (3, 2, ["TimeAwareObservation"])
    assert group.env_kwargs == {"g": 5}
    shorter = {"learning_starts": 900, "exploration_steps": 9000}  # nine tenths of the preset, as of its steps
    assert group.options == preset_config("Pendulum-v1", gamma=0.5, **shorter).to_json()


@pytest.mark.parametrize("flags", ["--diagnose", "--dataset data.npz", "--dataset data.npz --offline-timesteps 5"])
def test_what_is_for_one_run_is_refused_with_several_seeds(flags, tmp_path, capsys):
    assert main(["train", "Pendulum-v1", "--seeds", "2", *flags.split(), "--root", str(tmp_path / "runs")]) == 2
    assert not lacking(capsys.readouterr().err, flags.split()[0], "--seeds")
    assert not list(tmp_path.iterdir())
