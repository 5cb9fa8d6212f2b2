"""What environments are made from: keyword arguments as words, in files, and wherever an environment is made again."""

import json

import gymnasium as gym
import numpy as np
import pytest
from agent_options import TINY
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import lacking, refuses

from ddpg import DDPGConfig, UsageError, resume, train
from ddpg.cli.main import main
from ddpg.errors import EnvironmentFault
from ddpg.runs import run_directory
from ddpg.runs.curves import labels
from ddpg.runs.env_factory import make_env, make_training_env
from ddpg.runs.env_source import EnvSource, checked_kwargs, kwargs_of, words_of
from ddpg.runs.found_runs import Run
from ddpg.runs.listing import list_runs, runs_text
from ddpg.runs.rendering_process import RenderingProcess
from ddpg.runs.tables import read_table

CONFIG = DDPGConfig(**TINY, learning_starts=4, buffer_size=1000)
BRIEF = {"total_timesteps": 24, "evaluation_interval": 24, "evaluation_episodes": 2, "seed": 1, "progress_bar": False}
LIGHT = {"g": 5.0, "max_episode_steps": 6}  # Pendulum's usual ones are 10 m/s² and 200


def test_values_are_json_or_python_or_text():
    words = [
        *("a=-5", "b=.5", "c=1e-3", "d=true", "e=True", "f=None", "g=reach-v3", "h=[1, 2]", 'i="3"', "j=", "k=1_0"),
        *('l={"x": 1}', "m=x=y"),
    ]
    found = kwargs_of(words)
    expected = [-5, 0.5, 1e-3, True, True, None, "reach-v3", [1, 2], "3", "", 10, {"x": 1}, "x=y"]
    assert [*found] == [*"abcdefghijklm"]
    assert [*found.values()] == expected
    assert [type(value) for value in found.values()] == [type(value) for value in expected]


JSON = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(-(2**62), 2**62), st.text()),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@example({"a": "3", "b": "None", "c": "", "d": "[1]", "e": '"', "f": '"x"'})
@given(st.dictionaries(st.from_regex(r"[a-z][a-z_0-9]{0,5}", fullmatch=True), JSON, max_size=4))
def test_words_are_read_back_as_they_were(kwargs):
    kwargs = {name: value for name, value in kwargs.items() if name not in ("id", "render_mode")}
    assert kwargs_of(words_of(kwargs)) == kwargs
    assert checked_kwargs(kwargs) == kwargs


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        (["g=5"], "env_kwargs"),
        ({1: 2}, "env_kwargs"),
        ({"a b": 2}, "env_kwargs 'a b'"),
        ({"render_mode": "human"}, "render_mode record watch"),
        ({"disable_env_checker": False}, "disable_env_checker"),
        ({"id": "Ant-v5"}, "id"),
        ({"g": np.float32(5)}, "g 5.0"),
        ({"g": float("nan")}, "g nan"),
        ({"g": [1, {"x": float("inf")}]}, "g inf"),
        ({"g": {1: 2}}, "g"),
        ({"g": lambda: 5}, "g module:Id"),
        ({"g": 2**63}, "g 9223372036854775808"),
        ({"max_episode_steps": 0}, "max_episode_steps 0"),
        ({"max_episode_steps": 7.0}, "max_episode_steps 7.0"),
        ({"max_episode_steps": True}, "max_episode_steps True"),
        ({f"a{i}": i for i in range(65)}, "65 64"),
    ],
)
def test_what_no_file_could_hold_is_refused(kwargs, words):
    with refuses(UsageError, words):
        checked_kwargs(kwargs)


def test_nesting_has_an_end():
    deep = []
    for _ in range(50):
        deep = [deep]
    with refuses(UsageError, "g"):
        checked_kwargs({"g": deep})
    too_deep = "[" * 100_000
    assert kwargs_of([f"g={too_deep}"]) == {"g": too_deep}  # no JSON


@pytest.mark.parametrize("word", ["g", "=5", "", "1g=5"])
def test_words_that_are_no_name_and_value_are_refused(word):
    with refuses(UsageError, "env_kwargs"):
        kwargs_of([word])


def test_a_name_is_given_once():
    with refuses(UsageError, "g twice"):
        kwargs_of(["g=5", "g=6"])


class Still:
    """A policy of ``drawn/Telling-v0``, which does nothing."""

    def predict(self, observation, deterministic=True):
        return np.zeros(1, np.float32), None


class Needy(gym.Env):
    """An environment whose constructor needs an argument."""

    def __init__(self, size):
        raise ValueError(size)


class Greedy(gym.Env):
    """An environment that takes a number out of its argument."""

    observation_space = action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, sizes):
        self.size = sizes.pop()


def test_arguments_that_an_environment_does_not_have_or_that_it_lacks_are_named():
    with refuses(UsageError, "Pendulum-v1 gravity") as caught:
        make_env(EnvSource("Pendulum-v1", (), {"g": 5.0, "gravity": 3.0}))
    assert not isinstance(caught.value, EnvironmentFault)
    gym.register("Needy-v0", Needy)
    with refuses(EnvironmentFault, "Needy-v0 --env-kwargs size"):
        make_env("Needy-v0")
    with refuses(EnvironmentFault, "Needy-v0 ValueError 3"):
        make_env(EnvSource("Needy-v0", (), {"size": 3}))
    with refuses(UsageError, "EnvPool's env_kwargs"):
        make_training_env(EnvSource("Pendulum-v1", (), LIGHT), 2, "envpool")


def test_an_environment_cannot_change_the_arguments_of_the_next_one():
    gym.register("Greedy-v0", Greedy)
    source = EnvSource("Greedy-v0", (), {"sizes": [3]})
    assert [make_env(source).unwrapped.size for _ in range(2)] == [3, 3]
    assert source.kwargs == {"sizes": [3]}


def test_a_dict_that_gymnasium_cannot_flatten_is_left_for_the_agent_to_refuse(tmp_path):
    class Told(gym.Env):
        observation_space = gym.spaces.Dict(image=gym.spaces.Box(0, 1, (2,)), mission=gym.Space())
        action_space = gym.spaces.Box(-1, 1, (1,))

    gym.register("Told-v0", Told)
    assert make_env("Told-v0").observation_space == Told.observation_space
    with refuses(UsageError, "part 'mission'"):
        train("Told-v0", CONFIG, root=tmp_path, **BRIEF)


def test_a_drawn_environment_has_them():
    frames = []
    for limit in (1, 2):
        with RenderingProcess(EnvSource("drawn_envs:drawn/Telling-v0", (), {"max_episode_steps": limit})) as drawn:
            frames.append(len([*drawn.frames(Still(), 1, 0)]))
    assert frames == [2, 3]  # the first observation, and each step


def lengths(run):
    return {int(row["length"]) for row in read_table(run / "episodes.csv")}


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """A run in a light pendulum with short episodes."""
    root = tmp_path_factory.mktemp("light")
    return train("Pendulum-v1", CONFIG, root=root, env_kwargs=LIGHT, **BRIEF)


def test_a_run_records_them_and_they_change_what_is_learned(light, tmp_path):
    document = run_directory.read_config(light)
    assert (document["env_kwargs"], document["episode_limit"]) == (LIGHT, 6)
    assert lengths(light) == {6}
    usual = train("Pendulum-v1", CONFIG, root=tmp_path, env_kwargs={"max_episode_steps": 6}, **BRIEF)
    first, second = (read_table(run / "evaluations.csv")[-1]["mean_return"] for run in (light, usual))
    assert first != second
    (row,) = list_runs(light.parents[1])
    assert row["env_kwargs"] == LIGHT
    assert not lacking(runs_text([row]), "g=5.0 max_episode_steps=6")
    own, other = labels([Run(run, run_directory.read_config(run), []) for run in (light, usual)])
    assert not lacking(own, "g=5.0")
    assert not lacking(other, "max_episode_steps=6")


def test_arguments_in_a_forged_file_are_checked(light):
    with refuses(UsageError, "render_mode"):
        EnvSource.of_run(run_directory.read_config(light) | {"env_kwargs": {"render_mode": "human"}})


def test_evaluations_and_resumed_runs_have_them(light, tmp_path, capsys):
    assert main(["evaluate", str(light), "--episodes", "2", "--seed", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mean_length"] == 6
    whole = train("Pendulum-v1", CONFIG, root=tmp_path, env_kwargs=LIGHT, **BRIEF | {"total_timesteps": 36})
    resume(light, total_timesteps=36, progress_bar=False)
    assert lengths(light) == {6}
    first, second = (run_directory.read_config(run)["env_kwargs"] for run in (light, whole))
    assert first == second == LIGHT
    assert read_table(light / "episodes.csv")[:4] == read_table(whole / "episodes.csv")[:4]


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [{"n_envs": 2}, {"n_envs": 2, "vectorization": "async"}, {"collector": "process", "workers": 1}]
)
def test_whoever_steps_the_environment_has_them(how, tmp_path):
    longer = BRIEF | {"total_timesteps": 60, "evaluation_interval": 60}
    run = train("Pendulum-v1", CONFIG, root=tmp_path, env_kwargs=LIGHT, **longer, **how)
    assert lengths(run) == {6}


def test_the_command_line(tmp_path, capsys):
    flags = ["--env-kwargs", "g=5", "--env-kwargs", "max_episode_steps=6", "--total-timesteps", "24"]
    small = [
        "--recipe",
        "ddpg",
        "--hidden",
        "4",
        "--batch-size",
        "4",
        "--learning-starts",
        "4",
        "--no-jit",
        "--evaluation-episodes",
        "1",
    ]
    assert main(["train", "Pendulum-v1", *flags, *small, "--root", str(tmp_path), "--json", "--no-progress-bar"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert run_directory.read_config(tmp_path / "Pendulum-v1" / "1")["env_kwargs"] == {"g": 5, "max_episode_steps": 6}
    assert main(["train", "Pendulum-v1", "--env-kwargs", "gravity=5"]) == 2
    assert not lacking(capsys.readouterr().err, "Pendulum-v1 gravity")
    assert main(["paths", "Pendulum-v1", "--env-kwargs", "gravity=5"]) == 2
    assert main(["tune", "Pendulum-v1", "--env-kwargs", "gravity"]) == 2
    assert run.endswith("1")
