"""The report at the end of ``ddpg train`` and ``ddpg resume``."""

import json
import re

from ddpg.checkpoints import target_dir
from ddpg.cli.train import print_report
from ddpg.runs import run_config


def test_the_speed_of_a_resumed_run_covers_all_its_processes(tmp_path, capsys):
    """120 steps in 5 s, of which 1 s compiling: 30 steps/s, whatever the last process reached."""
    config = {"env_id": "X-v0", "algorithm": "ddpg", "seed": 0, "total_timesteps": 120, "evaluation_interval": 60}
    config |= {"evaluation_episodes": 1, "n_envs": 1, "vectorization": "sync"}
    (tmp_path / "checkpoints" / "120").mkdir(parents=True)
    (tmp_path / "checkpoints" / "120" / target_dir.MANIFEST).touch()
    run_config.write(tmp_path, config | {"config": {}, "versions": {}, "command": []})
    (tmp_path / "metrics.csv").write_text("timesteps,seconds,compile_seconds,fps\n60,2,0.5,40\n120,5,1,90\n")
    (tmp_path / "evaluations.csv").write_text("timesteps,episodes,mean_return\n120,1,-2.5\n")
    print_report(tmp_path, as_json=True)
    assert json.loads(capsys.readouterr().out)["steps_per_second"] == 30
    print_report(tmp_path, as_json=False)
    assert "5.0 s of training (1.0 s of them compiling), 30 steps/s" in capsys.readouterr().out
    run_config.write(tmp_path, config | {"config": {}, "versions": {}, "command": [], "dataset": "data.npz"})
    print_report(tmp_path, as_json=False)  # from data alone, a timestep is an update
    assert re.search("after 120 updates, .* 30 updates/s", capsys.readouterr().out)
