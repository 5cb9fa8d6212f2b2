"""``load_policy`` refuses files and directories that are not exported policies."""

import json

import pytest
from refusals import refuses

from ddpg import UsageError, load_policy
from ddpg.exports.policy_file import ABOUT


@pytest.mark.parametrize("about", [{}, {"kind": "numpy", "format": 1}, {"kind": "savedmodel"}])
def test_a_foreign_policy_json_is_refused(about, tmp_path):
    (tmp_path / ABOUT).write_text(json.dumps(about))
    with pytest.raises(UsageError) as caught:
        load_policy(tmp_path)
    assert str(tmp_path / ABOUT) in str(caught.value)
    assert "`ddpg export`" in str(caught.value)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("run/checkpoints/100", "DDPG.load DQN.load ddpg export"),
        ("run/manifest.json", "DDPG.load DQN.load ddpg export"),
        ("run/other", "policy.json policy.safetensors"),
    ],
)
def test_other_paths_are_refused_with_advice(tmp_path, file, words):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with refuses(UsageError, words):
        load_policy(tmp_path / "run")
    with refuses(UsageError, "ONNX"):
        load_policy(path)
    with refuses(UsageError, "not exist zoo:NAME"):
        load_policy(tmp_path / "Pendulum-v1")
