"""Data sets are read from .npz archives and from Minari; each bad one is refused in one line."""

import os
import sys
import zipfile

import fake_minari
import gymnasium as gym
import numpy as np
import pytest
from agent_options import TINY
from conftest import assert_close
from fake_minari import BOX, Episode
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError, load_dataset
from ddpg.cli.main import main
from ddpg.errors import FileFault
from ddpg.runs import dataset as datasets
from ddpg.runs.dataset import KEYS, fill

SPACES = gym.spaces.Box(-9, 9, (3,), np.float32), gym.spaces.Box(-2, 4, (2,), np.float32)
SMALL = DDPGConfig(**TINY, buffer_size=20)


def arrays(**changes):
    """Return the arrays of four transitions: two episodes, one terminated, one cut short."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(5, 3))
    found = {
        "observations": states[:4],
        "actions": rng.uniform(-2, 4, (4, 2)),
        "rewards": rng.normal(size=4),
        "next_observations": states[1:],
        "terminations": np.array([False, True, False, False]),
        "truncations": np.array([False, False, False, True]),
    }
    return {name: value for name, value in (found | changes).items() if value is not None}


def write_archive(path, **changes):
    np.savez(path, **arrays(**changes))
    return path


@pytest.mark.parametrize("given", [str, lambda path: path], ids=["text", "path"])
def test_an_archive_is_read_as_it_was_written(given, tmp_path):
    found = load_dataset(given(write_archive(tmp_path / "data.npz")))
    for array, (name, expected) in zip(found, arrays().items(), strict=True):
        np.testing.assert_array_equal(array, expected, err_msg=name)
    assert found.terminated.dtype == found.truncated.dtype == bool


@pytest.mark.parametrize(("field", "name"), [(field, name) for field, names in KEYS.items() for name in names])
def test_every_alias_of_an_array_is_read(field, name, tmp_path):
    """As in D4RL, flags may be numbers, and arrays of scalars may have shape [B, 1]."""
    usual = {"terminated": "terminations", "truncated": "truncations"}.get(field, field)
    value = arrays()[usual]
    column = value.astype(np.float32).reshape(4, -1) if field in usual + "rewards terminated truncated" else value
    path = write_archive(tmp_path / "data.npz", **{usual: None} | {name: column})
    np.testing.assert_allclose(getattr(load_dataset(path), field), value, rtol=1e-6)


def test_a_compressed_archive_behind_a_link_is_read(tmp_path):
    np.savez_compressed(tmp_path / "data.npz", **arrays(), more=np.zeros(3))
    os.symlink(tmp_path / "data.npz", tmp_path / "link.npz")
    np.testing.assert_array_equal(load_dataset(tmp_path / "link.npz").rewards, arrays()["rewards"])


def test_a_data_set_fills_the_replay_memory(tmp_path):
    """Actions are stored in [-1, 1]; no successor is beyond the end of an episode."""
    agent = DDPG(SPACES, SMALL.replace(normalize_observations=True), seed=0)
    fill(agent, write_archive(tmp_path / "data.npz"))
    assert (len(agent.replay), agent.num_timesteps) == (4, 0)
    state = agent.memory.sampler.state()
    np.testing.assert_allclose(state["actions"], (arrays()["actions"] - 1) / 3, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(state["terminated"][:, 0], [0, 1, 0, 0])
    np.testing.assert_array_equal(state["truncated"][:, 0], [0, 0, 0, 1])
    assert state["successors"].tolist() == [1, -1, 3, -1]
    mean = agent.memory.statistics()["observations.mean"]
    np.testing.assert_allclose(mean, arrays()["observations"].mean(axis=0), rtol=1e-5)


def test_the_replay_memory_of_a_run_as_a_data_set(tmp_path):
    """With its actions in [-1, 1] it is refused; with actions in env units it gives the same memory."""
    first, second = (DDPG(SPACES, SMALL, seed=0) for _ in range(2))
    first.remember(*load_dataset(write_archive(tmp_path / "data.npz")))
    memory = first.replay.arrays()
    np.savez(tmp_path / "memory.npz", **memory)
    with refuses(UsageError, "memory.npz position agent.to_env"):
        load_dataset(tmp_path / "memory.npz")
    in_env_units = memory | {"actions": first.to_env(memory["actions"])}
    del in_env_units["position"]
    np.savez(tmp_path / "units.npz", **in_env_units)
    second.remember(*load_dataset(tmp_path / "units.npz"))
    assert_close(second.replay.arrays(), memory, rtol=1e-6, atol=1e-6)
    load_dataset(write_archive(tmp_path / "places.npz", position=np.zeros((4, 3))))  # further arrays are ignored


BAD = {
    **{f"no {name}": ({name: None}, name) for name in arrays()},
    "two names": ({"terminals": np.zeros(4, bool)}, "terminations terminals"),
    "no rows": ({name: value[:0] for name, value in arrays().items()}, "observations (0, 3)"),
    "a number": ({"observations": np.float32(3)}, "observations ()"),
    "fewer actions": ({"actions": np.zeros((3, 2))}, "actions (3, 2) 4"),
    "more rewards": ({"rewards": np.zeros(5)}, "rewards (5,) 4"),
    "two rewards a row": ({"rewards": np.zeros((4, 2))}, "rewards (4, 2) (4,)"),
    "another observation": ({"observations": np.zeros((4, 5)), "next_observations": np.zeros((4, 5))}, "(4, 5)"),
    "another next observation": ({"next_observations": np.zeros((4, 2))}, "next_observations (4, 2)"),
    "another action": ({"actions": np.zeros((4, 3))}, "action (3,) (2,)"),
    "text": ({"rewards": np.array(["a"] * 4)}, "rewards <U1"),
    "complex": ({"observations": np.zeros((4, 3), complex)}, "observations complex128"),
    "dates": ({"rewards": np.zeros(4, "datetime64[s]")}, "rewards datetime64"),
    "NaN in observations": ({"observations": np.full((4, 3), np.nan)}, "observations nan"),
    "infinite rewards": ({"rewards": np.full(4, np.inf)}, "rewards inf"),
    "NaN in actions": ({"actions": np.full((4, 2), np.nan)}, "action nan"),
    "NaN in flags": ({"truncations": np.full(4, np.nan)}, "truncations nan"),
    "half a flag": ({"terminations": np.array([0, 0.5, 0, 1])}, "terminations 0.5 1"),
    "an action outside": ({"actions": np.full((4, 2), 4.5)}, "4.5"),
    "too large for float32": ({"observations": np.full((4, 3), 1e300)}, "observations"),
}


@pytest.fixture(scope="module")
def empty_agent():
    with DDPG(SPACES, SMALL, seed=0) as agent:
        yield agent


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays(case, empty_agent, tmp_path):
    """The message is one line with the file's name, and nothing is stored."""
    changes, words = BAD[case]
    path = write_archive(tmp_path / "bad.npz", **changes)
    with refuses(UsageError, f"bad.npz {words}") as caught:
        fill(empty_agent, path)
    assert "\n" not in str(caught.value)
    assert len(empty_agent.replay) == 0


def test_a_memory_that_is_too_small(tmp_path):
    agent = DDPG(SPACES, SMALL.replace(buffer_size=3), seed=0)
    with refuses(UsageError, "buffer_size=3 4 --buffer-size"):
        fill(agent, write_archive(tmp_path / "data.npz"))
    assert len(agent.replay) == 0


def pickled_objects(path):
    np.savez(path, **arrays(rewards=np.array([{}, 1, 2, 3], object)))


def truncated(path):
    write_archive(path)
    path.write_bytes(path.read_bytes()[:-200])


def flipped(path):
    write_archive(path)
    data = bytearray(path.read_bytes())
    data[250] ^= 255
    path.write_bytes(data)


def without_arrays(path):
    with zipfile.ZipFile(path, "w") as archive:
        for name in arrays():
            archive.writestr(f"{name}.npy", b"no array")


DAMAGED = {
    "pickled objects": pickled_objects,
    "truncated": truncated,
    "a bit flipped": flipped,
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("hello"),
    "a pickle": lambda path: path.write_bytes(b"cos\nsystem\n(S'true'\ntR."),
    "one array": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00"),
    "no arrays within": without_arrays,
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files(case, tmp_path):
    DAMAGED[case](tmp_path / "bad.npz")
    advice = "give the path .npz" if case in ("a folder", "a pipe") else ""
    with refuses(FileFault, f"bad.npz {advice}") as caught:
        load_dataset(tmp_path / "bad.npz")
    assert "\n" not in str(caught.value)
    assert not advice or "checkpoint" not in str(caught.value)


def test_an_archive_larger_than_the_memory_is_refused(tmp_path, monkeypatch):
    """The unpacked size in the archive's index counts, so a small file of zeros is refused before it is unpacked."""
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, **arrays(observations=np.zeros((4, 1000)), more=np.zeros((1000, 1000))))
    size = sum(array.nbytes + 128 for array in arrays(observations=np.zeros((4, 1000))).values())
    monkeypatch.setattr(datasets, "memory_limit", lambda: size)
    load_dataset(path)
    monkeypatch.setattr(datasets, "memory_limit", lambda: size - 1)
    with refuses(UsageError, f"zeros.npz {size}"):
        load_dataset(path)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("none.npz", "none.npz"),
        ("data.hdf5", "data.hdf5 .npz"),
        ("", "dataset"),
        (3, "dataset 3"),
        ("minari:a", "'minari'"),
        *((f"minari:{name}", "Minari letters D4RL/pen/human-v2") for name in ("", " ", "..", "/a", "a/", "a b", "a\n")),
        ("minari:a\0b", "Minari a\\x00b"),
        (f"minari:{300 * 'a'}", "Minari letters"),
    ],
)
def test_sources_that_are_no_data_set(source, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "minari", None)  # as if it were not installed
    with refuses(UsageError, words):
        load_dataset(source)


@pytest.mark.parametrize("source", ["none.npz", "bad.npz", "minari:a"])
def test_the_command_line_reports_it_in_one_line(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "minari", None)
    write_archive(tmp_path / "bad.npz", rewards=None)
    small = ["--total-timesteps", "5", "--no-progress-bar", "--hidden", "4", "--n-critics", "1", "--optimizer", "sgd"]
    assert main(["train", "Pendulum-v1", "--dataset", source, *small]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("ddpg: error: ")
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_workers_are_refused_before_their_number_is_asked_for(tmp_path, capsys):
    """And before TensorFlow is imported."""
    data = str(write_archive(tmp_path / "data.npz"))
    assert main(["train", "Pendulum-v1", "--dataset", data, "--collector", "process"]) == 2
    assert "collector='process' and dataset both provide transitions" in capsys.readouterr().err


# -- Minari, replaced by a fake -------------------------------------------------------------------------------------


def episode(number, steps, terminated, **changes):
    rng = np.random.default_rng(number)
    ended = np.arange(steps) == steps - 1
    fields = {
        "observations": rng.normal(size=(steps + 1, 3)),
        "actions": rng.uniform(-2, 4, (steps, 2)),
        "rewards": rng.normal(size=steps),
        "terminations": ended & terminated,
        "truncations": ended & (not terminated),
    }
    return Episode(number, **fields | changes)


def test_episodes_become_transitions(tmp_path, monkeypatch):
    """The last observation is the last next observation; an episode without steps gives no transition."""
    episodes = [episode(0, 3, True), episode(1, 0, True), episode(2, 2, False)]
    fake_minari.install(monkeypatch, tmp_path, "a/b-v0", episodes)
    found = load_dataset("minari:a/b-v0")
    first, _, last = episodes
    np.testing.assert_array_equal(found.observations, [*first.observations[:-1], *last.observations[:-1]])
    np.testing.assert_array_equal(found.next_observations, [*first.observations[1:], *last.observations[1:]])
    np.testing.assert_array_equal(found.actions, [*first.actions, *last.actions])
    np.testing.assert_array_equal(found.rewards, [*first.rewards, *last.rewards])
    assert found.terminated.tolist() == [False, False, True, False, False]
    assert found.truncated.tolist() == [False, False, False, False, True]
    agent = DDPG(SPACES, SMALL, seed=0)
    fill(agent, "minari:a/b-v0")
    assert agent.memory.sampler.state()["successors"].tolist() == [1, 2, -1, 4, -1]


def test_episodes_without_a_flag_at_their_end_are_not_joined(tmp_path, monkeypatch):
    """Each episode starts where the other ends: the first 3-step return is 1 + 0.9, not 1 + 0.9 + 81."""
    episodes = [
        episode(number, 2, False, observations=np.full((3, 3), [[0], [at], [0]]), rewards=rewards, truncations=[0, 0])
        for number, (at, rewards) in enumerate([(1, [1.0, 1.0]), (2, [100.0, 100.0])])
    ]
    fake_minari.install(monkeypatch, tmp_path, "a", episodes)
    found = load_dataset("minari:a")
    assert found.truncated.tolist() == [False, True, False, True]
    assert not found.terminated.any()
    agent = DDPG(SPACES, SMALL.replace(n_steps=3, gamma=0.9), seed=0)
    agent.remember(*found)
    returns = agent.replay.gather(np.arange(4), 3, 0.9).rewards[:, 0]
    np.testing.assert_allclose(returns, [1.9, 1.0, 190.0, 100.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("episodes", "words"),
    [
        ([], "minari:a"),
        ([episode(0, 2, True, actions=(np.zeros(2),))], "minari:a actions tuple"),
        ([episode(4, 2, True, observations=np.zeros((2, 3)))], "minari:a episode 4 has 2 observations 2 steps 3"),
        # Together they have as many actions as steps.
        (
            [
                episode(0, 2, True),
                episode(1, 2, True, actions=np.zeros((3, 2))),
                episode(2, 2, True, actions=np.zeros((1, 2))),
            ],
            "minari:a episode 1 3 actions 2",
        ),
        ([episode(0, 2, True, actions=np.full((2, 2), 9.0))], "minari:a 9.0"),
        ([episode(0, 2, True), episode(1, 2, True, observations=np.zeros((3, 4)))], "minari:a observations (3,) (4,)"),
        ([episode(0, 2, True), episode(1, 2, True, actions=np.zeros(2))], "minari:a actions () (2,)"),
    ],
    ids=["empty", "tuple", "no last one", "shifted actions", "outside", "two environments", "two kinds of actions"],
)
def test_bad_minari_data_sets(episodes, words, empty_agent, tmp_path, monkeypatch):
    fake_minari.install(monkeypatch, tmp_path, "a", episodes)
    with refuses(UsageError, words):
        fill(empty_agent, "minari:a")


def test_a_minari_data_set_of_large_images(tmp_path, monkeypatch):
    """Its description holds the bounds of every byte of an image: more than a megabyte for 224 x 224 pixels."""
    image = gym.spaces.Box(0, 255, (224, 224, 3), np.uint8)
    space = BOX | {"shape": image.shape, "low": image.low.tolist(), "high": image.high.tolist()}
    frames = np.zeros((2, *image.shape), np.uint8)
    data = fake_minari.install(monkeypatch, tmp_path, "a", [episode(0, 1, True, observations=frames)], space)
    assert (data / "metadata.json").stat().st_size > 1 << 20
    assert load_dataset("minari:a").observations.shape == (1, *image.shape)


def described(space):
    """Return a space as Minari writes it, shortened."""
    kind = type(space).__name__
    if kind == "Dict":
        return {"type": kind, "subspaces": {name: described(part) for name, part in space.items()}}
    if kind == "Tuple":
        return {"type": kind, "subspaces": [described(part) for part in space]}
    return {"type": kind} | ({"start": int(space.start), "n": int(space.n)} if kind == "Discrete" else {})


def read_by_minari(space, samples):
    """Return samples of a space as Minari reads them: a Dict's parts by name, in alphabetical order."""
    if isinstance(space, gym.spaces.Dict):
        return {name: read_by_minari(space[name], [one[name] for one in samples]) for name in sorted(space)}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(read_by_minari(part, [one[index] for one in samples]) for index, part in enumerate(space))
    return np.array(samples)


PLACE = gym.spaces.Box(-9, 9, (2, 2), np.float32)
SHELVES = gym.spaces.Tuple((gym.spaces.MultiBinary(2), gym.spaces.Discrete(3, start=-1)))


@pytest.mark.parametrize(
    "space",
    [gym.spaces.Dict([("place", PLACE), ("aim", gym.spaces.Dict({"shelf": SHELVES}))]), SHELVES, SHELVES[1]],
    ids=["dict", "tuple", "discrete"],
)
def test_observations_of_minari_are_flattened_as_gymnasium_does(space, tmp_path, monkeypatch):
    """In the order of the space, in which "place" comes first."""
    space.seed(0)
    samples = [space.sample() for _ in range(6)]
    one = episode(0, 5, True, observations=read_by_minari(space, samples))
    fake_minari.install(monkeypatch, tmp_path, "a", [one], described(space))
    found = load_dataset("minari:a")
    expected = np.array([gym.spaces.flatten(space, sample) for sample in samples])
    np.testing.assert_array_equal(found.observations, expected[:-1])
    np.testing.assert_array_equal(found.next_observations, expected[1:])


@pytest.mark.parametrize(
    ("parts", "words"),
    [({"action_mask": BOX, "place": BOX}, "episode 0 action_mask .npz"), ({"name": {"type": "Text"}}, "Text .npz")],
)
def test_observations_that_cannot_be_flattened(parts, words, tmp_path, monkeypatch):
    one = episode(
        0, 1, True, observations={"action_mask": np.ones((2, 2)), "place": np.ones((2, 2)), "name": ["a", "b"]}
    )
    fake_minari.install(monkeypatch, tmp_path, "a", [one], {"type": "Dict", "subspaces": parts})
    with refuses(UsageError, f"minari:a {words}"):
        load_dataset("minari:a")


def test_a_minari_data_set_of_a_format_whose_package_is_missing(tmp_path, monkeypatch):
    fake_minari.install(monkeypatch, tmp_path, "a", [])

    def load(name):
        raise ImportError('pyarrow is not installed. Please install it using `pip install "minari[arrow]"`')

    monkeypatch.setattr(sys.modules["minari"], "load_dataset", load)
    with refuses(UsageError, 'minari:a pip install "minari[arrow]"') as caught:
        load_dataset("minari:a")
    assert not isinstance(caught.value, FileFault)
    assert "download" not in str(caught.value)


def test_missing_and_damaged_minari_data_sets(tmp_path, monkeypatch):
    data = fake_minari.install(monkeypatch, tmp_path, "a", [episode(0, 2, True)])
    with refuses(UsageError, "minari:b minari download minari[hf]"):
        datasets.check_source("minari:b")  # before TensorFlow is imported
    for version in ("-v2", "-v10", "-v2-new"):
        (tmp_path / f"c/d{version}").mkdir(parents=True)
    for name in ("c/d", "c/d-v9"):
        with refuses(UsageError, f"minari:{name} is not on this machine; it has c/d-v2, c/d-v10"):
            datasets.check_source(f"minari:{name}")
    without_spaces = "minari:a does not describe its spaces"
    for text, words in (
        ("{}", without_spaces),
        ("[]", without_spaces),
        ("{", "is not readable as JSON download the data set again"),
    ):
        (data / "metadata.json").write_text(text)
        with refuses(FileFault if text == "{" else UsageError, words):
            load_dataset("minari:a")
    (data / "metadata.json").unlink()
    with refuses(FileFault, "metadata.json"):
        load_dataset("minari:a")


# -- Minari itself, if it is installed -------------------------------------------------------------------------------


def test_a_data_set_that_minari_wrote(tmp_path, monkeypatch):
    """Minari writes an agent's episodes in Pendulum; they fill the agent's replay memory."""
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    steps, buffers = [], []
    with gym.make("Pendulum-v1", max_episode_steps=6) as env:
        agent = DDPG(env, SMALL, seed=0)
        for seed in range(3):
            observation, _ = env.reset(seed=seed)
            observations, rows = [observation], []
            while not rows or not (rows[-1][4] or rows[-1][5]):
                action, _ = agent.predict(observation, deterministic=False)
                following, reward, terminated, truncated, _ = env.step(action)
                rows.append((observation, action, reward, following, terminated, truncated))
                observations.append(observation := following)
            _, actions, rewards, _, terminated, truncated = zip(*rows, strict=True)
            buffers.append(
                EpisodeBuffer(
                    id=seed,
                    observations=np.array(observations),
                    actions=np.array(actions),
                    rewards=list(rewards),
                    terminations=list(terminated),
                    truncations=list(truncated),
                )
            )
            steps += rows
        minari.create_dataset_from_buffers(
            *("ours/pendulum-v0", buffers, env),
            **{"algorithm_name": "DDPG", "author": "us", "author_email": "us@ddpg.example"},
            **{"code_permalink": "https://ddpg.example", "description": "a test's"},
        )
    found = load_dataset("minari:ours/pendulum-v0")
    for array, expected in zip(found, zip(*steps, strict=True), strict=True):
        np.testing.assert_allclose(array, np.array(expected), rtol=1e-6)
    assert found.truncated.tolist() == ([False] * 5 + [True]) * 3
    fill(agent, "minari:ours/pendulum-v0")
    assert len(agent.replay) == 18
