"""Thousands of damaged and forged checkpoints are refused in one line, or read without any change."""

import copy
import json
import random

import numpy as np
import pytest
from checkpoints import fields, replay, reseal, sealed_array_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddpg import UsageError
from ddpg.checkpoints import checkpoint

GROUPS = {
    "variables": {"W:0": np.arange(6, dtype=np.float32).reshape(2, 3), "big": np.arange(3.0), "n": np.asarray(3)},
    "replay": replay(),
}
FILES = ("manifest.json", "variables.safetensors", "replay.safetensors")


class Sound:
    """A valid checkpoint: its files' bytes, and the result of reading it."""

    def __init__(self, path):
        self.path = checkpoint.write(path, fields(), GROUPS)
        self.files = {name: (path / name).read_bytes() for name in FILES}
        self.manifest, self.groups = checkpoint.read(path)
        self.changed = set()

    def put(self, files):
        """Write these files, and restore those that an earlier case has changed."""
        for name, data in {**{name: self.files[name] for name in self.changed}, **files}.items():
            (self.path / name).write_bytes(data)
        self.changed = set(files)

    def refusal(self):
        """Read the checkpoint; return the error message and ``None``, or ``None`` and the result."""
        try:
            return None, checkpoint.read(self.path)
        except UsageError as error:
            return str(error), None

    def is_refused(self):
        """Return whether reading is refused in one line; otherwise assert that the result has not changed."""
        message, found = self.refusal()
        if message is not None:
            assert message.isprintable()
            assert str(self.path) in message
            assert len(message) < 1_200  # a path, and a shortened value
            return True
        manifest, groups = found
        assert repr(sort_keys(manifest)) == repr(sort_keys(self.manifest))
        assert groups.keys() == self.groups.keys()
        for group, arrays in self.groups.items():
            assert groups[group].keys() == arrays.keys()
            for name, array in arrays.items():
                found = groups[group][name]
                assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
        return False


def sort_keys(value):
    """Return a document with sorted keys, so that comparing its ``repr`` distinguishes 1, 1.0 and True."""
    if isinstance(value, dict):
        return {name: sort_keys(value[name]) for name in sorted(value)}
    return value


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return Sound(tmp_path_factory.mktemp("damaged") / "c")


# -- damage: the checksums do not match ---------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_changes_of_every_other_byte_are_detected(sound, name):
    data, rng = sound.files[name], random.Random(name)
    for position in range(rng.randrange(2), len(data), 2):
        damaged = bytearray(data)
        damaged[position] ^= 1 << rng.randrange(8)
        sound.put({name: bytes(damaged)})
        # White space in the manifest may change to other white space; in array files every bit is checked.
        assert sound.is_refused() or (name == "manifest.json" and bytes([data[position]]).isspace())


@pytest.mark.parametrize("name", FILES)
def test_truncation_is_detected(sound, name):
    for length in range(0, len(sound.files[name]) - 1, 7):
        sound.put({name: sound.files[name][:length]})
        assert sound.is_refused()


@st.composite
def damages(draw, data):
    """Return ``data`` after some insertions, removals, swaps and overwritings."""
    damaged = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(damaged)))
        end = draw(st.integers(start, min(len(damaged), start + 64)))
        match draw(st.sampled_from(["insert", "remove", "overwrite", "repeat", "move"])):
            case "insert":
                damaged[start:start] = draw(st.binary(min_size=1, max_size=20))
            case "remove":
                del damaged[start:end]
            case "overwrite":
                damaged[start:end] = draw(st.binary(min_size=end - start, max_size=end - start))
            case "repeat":
                damaged[start:start] = damaged[start:end]
            case "move":
                piece = damaged[start:end]
                del damaged[start:end]
                place = draw(st.integers(0, len(damaged)))
                damaged[place:place] = piece
    return bytes(damaged)


@pytest.mark.slow  # in addition to every other byte, every seventh length, and swapped files
@settings(max_examples=200, suppress_health_check=list(HealthCheck), database=None)
@given(values=st.data())
def test_random_damage_is_detected(sound, values):
    name = values.draw(st.sampled_from(FILES))
    sound.put({name: values.draw(damages(sound.files[name]))})
    sound.is_refused()  # or asserts that the result has not changed


@pytest.mark.parametrize("one", FILES)
@pytest.mark.parametrize("other", FILES)
def test_swapped_files_are_detected(sound, one, other):
    sound.put({one: sound.files[other], other: sound.files[one]})
    assert sound.is_refused() == (one != other)


# -- forgery: the checksums match ---------------------------------------------------------------------

WRONG = [
    *(None, True, -1, 0.5, 2**53 + 1, 2**63, 2**128, -(2**64), 10**38, 1e12, -1e300, 1e308),
    *("", "x", "60", "NaN", "\0\n\x1b[2J", "a" * 5000, "\N{SNOWMAN}\N{GRINNING FACE}", "../../etc/passwd"),
    *([], {}, [[]], [1e9], [10**9], [None], ["x"] * 300, {"custom": 1}, {"custom": "x", "more": 1}, {"": {}}),
]


def paths_in(value, path=()):
    """Yield the path of every value in a document: keys and indices from the top."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from paths_in(value[key], (*path, key))


def changed(document, path, value):
    document = copy.deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return document


def removed(document, path):
    document = copy.deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return document


def is_manifest_refused(sound, document):
    """Write a manifest; return whether it is refused in one line, and otherwise assert that it is read unchanged."""
    sound.put({"manifest.json": json.dumps(document).encode()})
    message, found = sound.refusal()
    if message is not None:
        assert message.isprintable()
        assert len(message) < 1_200  # a path, and a shortened value
        return True
    manifest, groups = found
    assert manifest == json.loads(json.dumps(document))
    assert all(np.isfinite(array).all() for arrays in groups.values() for array in arrays.values())
    return False


def test_wrong_values_in_every_field(sound):
    """Accepted values are numbers in their range, options (which the config's dataclass checks), or names."""
    accepted, rng = set(), random.Random(0)
    for path in paths_in({name: value for name, value in sound.manifest.items() if name != "manifest_sha256"}):
        for value in rng.sample(WRONG, 12):
            wrong = changed(sound.manifest, path, value)
            if repr(wrong) != repr(sound.manifest) and not is_manifest_refused(sound, reseal(wrong)):
                accepted.add((path, repr(value)[:20]))
        assert is_manifest_refused(sound, removed(sound.manifest, path))  # its checksum does not match
    options = {("config", name) for name in ("hidden", "gamma", "norm", "jit")} | {("config", "hidden", 0)}
    names = {("kind",), ("algorithm",)}
    numbers = ("seed", "num_timesteps", "own_steps", "owed_updates", "largest_reward", "random_states")
    for path, value in accepted:
        if path in options:
            continue
        if path in names:
            assert value in ("'x'", "'60'", "'NaN'", "'" + "a" * 19)
            continue
        assert path[0] in numbers or path in (
            ("observation_space", "low"),
            ("observation_space", "high"),
            ("observation_space", "low", 0),
            ("action_space", "shape"),  # [] is a box of one number
            ("action_space", "low"),
            ("action_space", "high"),
        ), (path, value)
        assert path[0] == "random_states" or not value.startswith(("{", "'", "T")), (path, value)


def test_missing_fields_are_refused(sound):
    for path in paths_in({name: value for name, value in sound.manifest.items() if name != "manifest_sha256"}):
        refused = is_manifest_refused(sound, reseal(removed(sound.manifest, path)))
        scalar = path == ("action_space", "shape", 0)  # makes a scalar box
        optional = path[0] in ("config", "own_steps") or (path[0] == "random_states" and len(path) == 2)
        assert refused or scalar or optional, path


def test_duplicate_keys_are_refused(sound):
    text = sound.files["manifest.json"].decode()
    for name in [*sound.manifest, "gamma", "W:0", "inc", "dtype"]:
        start = text.index(f'"{name}":')
        sound.put({"manifest.json": (text[:start] + f'"{name}": 1, ' + text[start:]).encode()})
        assert sound.is_refused()


def test_numbers_that_are_not_json_are_refused(sound):
    documents = []
    for path in paths_in(sound.manifest):
        marked = json.dumps(changed(sound.manifest, path, "@@"))
        documents += [marked.replace('"@@"', word) for word in ("NaN", "-Infinity", "1e999", "9" * 5000, "0x10")]
    for document in documents:
        sound.put({"manifest.json": document.encode()})
        assert sound.is_refused()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.slow  # in addition to wrong values in every field
@settings(max_examples=60, suppress_health_check=list(HealthCheck), database=None)
@given(values=st.data())
def test_random_values_in_random_fields(sound, values):
    path = values.draw(st.sampled_from(list(paths_in(sound.manifest))))
    is_manifest_refused(sound, reseal(changed(sound.manifest, path, values.draw(json_values))))


@settings(max_examples=80, suppress_health_check=list(HealthCheck), database=None)
@given(values=st.data())
def test_random_headers_and_array_files(sound, values):
    """The file's checksum matches, too; names, dtypes, shapes, offsets and finiteness are still checked."""
    group = values.draw(st.sampled_from(["variables", "replay"]))
    data = sound.files[f"{group}.safetensors"]
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    if values.draw(st.booleans()):
        path = values.draw(st.sampled_from(list(paths_in(header))))
        new = json.dumps(changed(header, path, values.draw(json_values))).encode()
        data = len(new).to_bytes(8, "little") + new + data[8 + length :]
    else:
        data = values.draw(damages(data))
    sound.put({})
    sealed_array_file(sound.path, group, data)
    sound.changed = {"manifest.json", f"{group}.safetensors"}
    message, result = sound.refusal()
    if message is not None:
        assert message.isprintable()
        return
    for name, array in sound.groups[group].items():
        found = result[1][group][name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert np.isfinite(found).all()
