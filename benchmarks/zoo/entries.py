"""Make zoo entries from finished runs: export the policy, evaluate it in 100 episodes, and write its card."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddpg.config.algorithm_options import CONFIGS
from ddpg.config.presets import preset_for
from ddpg.errors import UsageError
from ddpg.exports import zoo
from ddpg.exports.numpy_policy import load_policy
from ddpg.exports.zoo import Card, CardEvaluation
from ddpg.interaction import env_calls
from ddpg.runs import run_directory
from ddpg.runs.env_factory import make_env
from ddpg.runs.evaluation import evaluate, final_seed
from ddpg.runs.found_runs import find_run_folders
from ddpg.runs.saved_policy import export_saved
from ddpg.runs.versions import versions_of_evaluation

EPISODES = 100
LICENSE = "MIT"


def add_finished(root: Path, folder: Path = zoo.FOLDER, replace: bool = False) -> Iterator[str]:
    """Add the finished runs below ``root``; yield a line about each run.

    Args:
        root: a folder of runs, such as a study's.
        folder: the zoo's folder.
        replace: replace existing entries.

    Raises:
        UsageError: if a run does not have its environment's preset.
    """
    for run in sorted(find_run_folders(root)):
        document = run_directory.read_config(run)
        name = zoo.entry_name(document["env_id"])
        steps = [int(path.name) for path in run_directory.checkpoints(run)]
        if document["total_timesteps"] not in steps:
            yield f"{name}: not finished"
        elif replace or name not in zoo.names(folder):
            add(run, document, folder)
            yield f"{name}: added"
        else:
            yield f"{name}: has an entry"


def add(run: Path, document: dict[str, Any], folder: Path) -> None:
    """Make an entry from a run's last checkpoint, whatever its return."""
    command = command_of(document)
    target = folder / zoo.entry_name(document["env_id"])
    with tempfile.TemporaryDirectory() as aside:
        exported, made = Path(aside) / "exported", Path(aside) / target.name
        export_saved(run, "numpy", exported, allow_import=[document["env_id"].rpartition(":")[0]])
        made.mkdir()
        for name in zoo.FILES[1:]:  # without act.py, since the zoo contains no code
            shutil.copy(exported / name, made / name)
        about = json.loads((made / "policy.json").read_text(encoding="utf-8"))
        card = Card(
            env_id=document["env_id"],
            algorithm=document["algorithm"],
            recipe=preset_for(_plain(document["env_id"]), CONFIGS[document["algorithm"]]).recipe,
            timesteps=document["total_timesteps"],
            seed=document["seed"],
            options=document["config"],
            command=command,
            license=LICENSE,
            versions=document["versions"],
            policy_sha256=about["policy_sha256"],
            evaluation=_evaluated(document, exported),
        )
        zoo.write_card(made, card)
        shutil.rmtree(target, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        shutil.copytree(made, target)


def command_of(document: dict[str, Any]) -> str:
    """Return the command that reproduces a run.

    Raises:
        UsageError: if the run does not have its environment's preset, or has wrappers or several environments.
    """
    env_id, total = document["env_id"], document["total_timesteps"]
    kind = CONFIGS[document["algorithm"]]
    preset = preset_for(_plain(env_id), kind)
    usual = kind(**preset.options_for(kind, total)).to_json()
    changed = sorted(name for name, value in document["config"].items() if usual.get(name) != value)
    if changed or document["n_envs"] != 1 or document["wrappers"] or document["env_kwargs"]:
        others = "n_envs, wrappers, env_kwargs"
        raise UsageError(f"the run of {env_id} differs from its preset: {', '.join(changed) or others}")
    length = f" --total-timesteps {total}" if total != preset.total_timesteps else ""
    return f"ddpg train {env_id} --seed {document['seed']}{length}"


def _plain(env_id: str) -> str:
    return env_id.rpartition(":")[2]


def _evaluated(document: dict[str, Any], exported: Path) -> CardEvaluation:
    env, seed = make_env(document["env_id"]), final_seed(document["seed"])
    with env_calls.closing(env):
        found = evaluate(load_policy(exported, portable=True), env, EPISODES, seed)
        # Leave out physics engines that other runs in this process have loaded.
        of_run = {*document["versions"], "machine", "functions"}
        versions = {name: version for name, version in versions_of_evaluation().items() if name in of_run}
    return CardEvaluation(
        seed=seed,
        returns=found.returns.tolist(),
        lengths=found.lengths.tolist(),
        successes=None if found.successes is None else found.successes.tolist(),
        versions=versions,
    )
