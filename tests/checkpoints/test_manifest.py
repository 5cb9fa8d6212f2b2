"""What a checkpoint may say: every refusal names the file, the field, the value and what was expected."""

import json
import os
import shutil
import time
import tracemalloc

import gymnasium as gym
import numpy as np
import pytest
from checkpoints import fields, replay, sealed, sealed_array_file

from ddpg import UsageError
from ddpg.checkpoints import checkpoint, safe_json

WEIGHTS = {"W:0": np.arange(6, dtype=np.float32).reshape(2, 3), "big": np.arange(3.0), "n": np.asarray(3)}


@pytest.fixture
def path(tmp_path):
    return checkpoint.write(tmp_path / "c", fields(), {"variables": WEIGHTS, "replay": replay()})


def refused(path, match, measured=False):
    """Reading ``path`` fails in one line that matches; memory is measured on request, since that takes time."""
    if measured:
        tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(UsageError, match=match) as caught:
            checkpoint.read(path)
        assert not measured or tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 30  # a guard against hanging, not a measurement
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 1000
    return message


def text(path):
    return (path / "manifest.json").read_text()


# -- the manifest's own checksum ----------------------------------------------------------------------


def test_the_checksum_is_that_of_the_canonical_json(path):
    found = json.loads(text(path))
    sealed(path)
    assert json.loads(text(path)) == found


def test_an_edited_value_is_refused(path):
    (path / "manifest.json").write_text(text(path).replace('"gamma":0.99', '"gamma":0.98'))
    message = refused(path, "does not match its own checksum, manifest_sha256: it was edited or damaged")
    assert str(path / "manifest.json") in message
    assert message.endswith("take another checkpoint")


def test_order_and_spaces_are_free(path):
    before = checkpoint.read(path)[0]
    (path / "manifest.json").write_text(json.dumps(dict(reversed(before.items())), indent=4))
    assert checkpoint.read(path)[0] == before


# -- fields -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_timesteps": "60"}, r"manifest\.json: num_timesteps is '60': expected `int`, got `str`; take another"),
        ({"num_timesteps": -1}, r"num_timesteps is -1: expected `int` >= 0"),
        ({"num_timesteps": True}, "num_timesteps is True: expected `int`, got `bool`"),
        ({"num_timesteps": 60.0}, r"num_timesteps is 60\.0: expected `int`, got `float`"),
        ({"num_updates": 10**17}, "num_updates is 1.*: expected `int` <= 9007199254740992"),
        ({"num_updates": None}, "num_updates is None: expected `int`, got `null`"),
        ({"owed_updates": 1e12}, r"owed_updates is 1000000000000\.0: expected .* < 2097152"),
        ({"owed_updates": -0.5}, r"owed_updates is -0\.5: expected `float` >= 0"),
        ({"owed_updates": 2.0**21}, r"owed_updates is 2097152\.0: expected .* < 2097152"),
        ({"largest_reward": 0.5}, r"largest_reward is 0\.5: expected `float` >= 1"),
        ({"largest_reward": 1e39}, r"largest_reward is 1e\+39"),
        ({"seed": -1}, "seed is -1: expected `int` >= 0"),
        ({"kind": "D\nQN"}, "kind is .*expected `str` matching regex"),
        ({"kind": ["DDPG"]}, r"kind is \['DDPG'\]: expected `str`, got `array`"),
        ({"extra": 1}, "contains unknown field `extra`"),
        ({"ex\ntra\x1b[2J": 1}, r"contains unknown field `ex\\ntra\\x1b"),
        ({"config": []}, r"config is \[\]: expected `object`, got `array`"),
        ({"config": {}}, r"config\['buffer_size'\] is None: expected `int`, got `null`"),
        ({"config": {"buffer_size": 5, "updates_per_call": 10**12}}, "updates_per_call.*<= 1048576"),
        ({"config": {"buffer_size": 5, "updates_per_call": 4, "hidden": [[1]]}}, "config.*hidden"),
        ({"config": {"buffer_size": 5, "updates_per_call": 4, "hidden": {"a": 1}}}, "config.*hidden"),
        ({"config": {"buffer_size": 5, "updates_per_call": 4, "batch_size": 2**60}}, "config.*batch_size"),
        ({"config": {"buffer_size": 2, "updates_per_call": 4}}, "'rewards'.*at most buffer_size rows, 2"),
        ({"sha256": {"variables.safetensors": "0" * 64}}, "expected one group for each of"),
        ({"sha256": {"variables.safetensors": "0" * 63, "replay.safetensors": "0" * 64}}, r"sha256\['variables"),
        ({"sha256": {"../x.safetensors": "0" * 64}}, "outside itself"),
        ({"sha256": []}, "not the manifest of a checkpoint"),
        ({"format": 2}, "has format 2, this version reads 3; load it with the version of ddpg-paths that wrote it"),
        ({"format": [[[]]]}, "has format"),
        ({"random_states": {"replay": 1}}, r"random_states\['replay'\] is 1: expected `object`, got `int`"),
    ],
)
def test_a_field_is_refused(path, changes, match):
    sealed(path, **changes)
    refused(path, match)


@pytest.mark.parametrize("name", [name for name in fields() if name != "format"] + ["arrays", "manifest_sha256"])
def test_a_missing_field_is_refused(path, name):
    found = json.loads(text(path))
    del found[name]
    (path / "manifest.json").write_text(json.dumps(found))
    refused(path, f"object missing required field `{name}`")


def random_state(**changes):
    state = {"state": 1, "inc": 3} | {k: changes.pop(k) for k in ("state", "inc") if k in changes}
    return {"bit_generator": "PCG64", "state": state, "has_uint32": 0, "uinteger": 0, **changes}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"bit_generator": "MT19937"}, r"random_states\['replay'\]\.bit_generator is 'MT19937'"),
        ({"state": 2**128}, r"state\.state is .*, expected less than 2\^128"),
        ({"inc": -1}, r"state\.inc is -1: expected `int` >= 0"),
        ({"inc": 4}, r"state\.inc is 4, expected an odd number"),
        ({"inc": 1.5}, r"state\.inc is 1\.5: expected `int`, got `float`"),
        ({"has_uint32": 2}, "has_uint32 is 2: expected `int` <= 1"),
        ({"uinteger": 2**32}, "uinteger is 4294967296: expected `int` <= 4294967295"),
        ({"more": 1}, "unknown field `more`"),
    ],
)
def test_a_random_state_is_refused(path, changes, match):
    sealed(path, random_states={"replay": random_state(**changes)})
    refused(path, match)


def test_the_largest_random_state_is_taken(path):
    state = random_state(state=2**128 - 1, inc=2**128 - 1, uinteger=2**32 - 1, has_uint32=1)
    sealed(path, random_states={"replay": state})
    assert checkpoint.read(path)[0]["random_states"] == {"replay": state}


BOX = {"type": "Box", "shape": [2], "dtype": "float32", "low": -1.0, "high": [1.0, None]}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"dtype": "V1000000000"},
            r"observation_space\.dtype is 'V1000000000': expected `str` .*float32\|",
        ),
        ({"dtype": ">f4"}, "dtype is '>f4'"),
        ({"dtype": "object"}, "dtype is 'object'"),
        ({"shape": [10**9]}, r"observation_space\.shape\[0\] is 1000000000: expected `int` <= 8388608"),
        ({"shape": [8 << 20, 2], "low": 0.0, "high": 1.0}, "expected elements of at most 8388608 bytes"),
        ({"shape": [-1]}, "expected `int` >= 0"),
        ({"shape": [2.0]}, "expected `int`, got `float`"),
        ({"shape": [3]}, r"high is .* expected one bound, or a list of 3, as the shape \[3\] has"),
        ({"low": "0"}, r"low is '0': expected"),
        ({"low": 1e300}, r"low is 1e\+300, expected a number of dtype float32"),
        ({"low": 2.0}, "expected nowhere more than high"),
        ({"low": True}, "low is True, expected a number of dtype float32"),
        ({"dtype": "uint8", "low": 0, "high": 256}, "high is 256, expected a number of dtype uint8"),
        ({"dtype": "uint8", "low": 0, "high": None}, "high is None"),
        ({"dtype": "uint8", "low": 0.5, "high": 1}, r"low is 0\.5"),
        ({"type": "Text"}, "type is 'Text': invalid value"),
        ({"type": {}}, r"type is \{\}: expected `str`"),
        ({"n": 3}, "unknown field `n`"),
    ],
)
def test_a_space_is_refused(path, changes, match):
    sealed(path, observation_space={**BOX, **changes})
    refused(path, match)
    with pytest.raises(UsageError, match="the space"):
        checkpoint.restore_space({**BOX, **changes})


@pytest.mark.parametrize(
    ("space", "match"),
    [
        ({"type": "Discrete", "n": 0, "start": 0}, r"action_space\.n is 0"),
        ({"type": "Discrete", "n": 10**10, "start": 0}, r"action_space\.n is 10000000000"),
        ({"type": "Discrete", "n": 3, "start": 2**63}, r"action_space\.start"),
        ({"type": "Discrete", "n": 3}, "missing required field `start`"),
        ({"type": "Tuple", "spaces": []}, r"action_space\.spaces is \[\]"),
        ({"type": "OneOf", "spaces": [BOX, 3]}, r"action_space\.spaces\[1\] is 3: expected `object`"),
        ({"type": "OneOf", "spaces": [BOX, {**BOX, "low": [0]}]}, r"action_space\.spaces\[1\]\.low is \[0\]"),
        ({"type": "Tuple", "spaces": [{**BOX, "shape": [8 << 18], "high": 1.0}] * 3}, "elements of at most"),
    ],
)
def test_an_action_space_is_refused(path, space, match):
    sealed(path, action_space=space)
    refused(path, match)


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
        gym.spaces.Box(-1.0, 1.0, (), np.float32),
        gym.spaces.Box(-1.0, 1.0, (0,), np.float32),
        gym.spaces.Box(0, 1, (2,), np.bool_),
        gym.spaces.Box(-1e-40, 0.1, (3, 2), np.float16),
        gym.spaces.Tuple([gym.spaces.Discrete(3, start=-2), gym.spaces.Tuple([gym.spaces.Box(-1.0, 2.0, (2,))] * 3)]),
        gym.spaces.OneOf([gym.spaces.Box(-1.0, 2.0, (2,)), gym.spaces.Box(-1.0, 1.0, (0,))]),
    ],
    ids=str,
)
def test_a_space_comes_back_as_it_was(space):
    again = checkpoint.restore_space(json.loads(json.dumps(checkpoint.describe_space(space))))
    assert again == space
    assert again.dtype == space.dtype


# -- arrays -------------------------------------------------------------------------------------------


def table(path, group, name, **changes):
    tables = json.loads(text(path))["arrays"]
    tables[group][name].update(changes)
    sealed(path, arrays=tables)


@pytest.mark.parametrize(
    ("group", "name", "changes", "match"),
    [
        ("variables", "W:0", {"shape": [3, 2]}, r"'W:0' is 'F32 \[2, 3\]', expected F32 \[3, 2\] by the manifest"),
        ("variables", "W:0", {"dtype": "int32"}, r"'W:0' is 'F32 \[2, 3\]', expected I32"),
        ("variables", "W:0", {"shape": [2, 4]}, r"expected F32 \[2, 4\]"),
        ("variables", "W:0", {"shape": [2**40] * 4}, "its size in bytes is .*, expected 5846"),
        ("variables", "W:0", {"shape": [2**41]}, r"shape\[0\] is 2199023255552"),
        ("variables", "W:0", {"dtype": "object"}, r"arrays\['variables'\]\['W:0'\]\.dtype is 'object'"),
        ("variables", "W:0", {"dtype": "float16"}, "dtype is 'float16'"),
        ("variables", "W:0", {"offset": 5}, "offset"),
        ("replay", "rewards", {"shape": [2, 1]}, r"'observations'\] is 'float32 \[3, 2\]', expected float32 \[2, 2\]"),
        ("replay", "rewards", {"shape": []}, "expected float32"),
        ("replay", "actions", {"shape": [2, 1]}, r"'actions'\].* expected float32 \[3, A\]"),
        ("replay", "observations", {"dtype": "uint8"}, r"'observations'\] is 'uint8"),
        ("replay", "terminated", {"dtype": "float32"}, r"'terminated'\] is 'float32 .* expected uint8 \[3, 1\]"),
        ("replay", "last_observations", {"shape": [4, 2]}, r"'last_observations'\]\.shape is .* at most 3 rows"),
        ("replay", "last_observations", {"shape": [2, 1]}, r"'last_observations'\] is .* expected float32 \[2, 2\]"),
        ("replay", "last_observations", {"shape": []}, r"'last_observations'\] is .* expected float32 \[2\]"),
        ("replay", "successors", {"shape": [3, 1]}, r"'successors'\] is .* expected int32 \[3\]"),
        ("replay", "successors", {"dtype": "float32"}, r"'successors'\] is .* expected int32 \[3\]"),
        ("replay", "position", {"shape": [1]}, r"'position'\].* expected one int64"),
        ("replay", "position", {"dtype": "float64"}, r"'position'\].* expected one int64"),
    ],
)
def test_a_table_is_refused(path, group, name, changes, match):
    table(path, group, name, **changes)
    refused(path, match)


def test_files_without_a_table_are_refused(path):
    sealed(path, arrays={"variables": json.loads(text(path))["arrays"]["variables"]})
    refused(path, r"arrays is \['variables'\], expected one group for each of")


def test_other_replay_arrays_are_refused(path):
    tables = json.loads(text(path))["arrays"]
    tables["replay"]["actoins"] = tables["replay"].pop("actions")
    sealed(path, arrays=tables)
    refused(path, r"arrays\['replay'\] is .* expected the arrays")


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"priorities": np.ones(3)}, "or neither"),
        ({"priorities": np.ones((3, 1)), "largest_priority": np.asarray(1.0)}, r"'priorities'\] is .* float64 \[3\]"),
        ({"priorities": np.ones(3), "largest_priority": np.ones(1)}, r"'largest_priority'\] is .* float64 \[\]"),
    ],
)
def test_a_table_of_priorities_is_refused(tmp_path, arrays, match):
    with pytest.raises(UsageError, match=match):
        checkpoint.write(tmp_path / "c", fields(), {"replay": replay() | arrays})


@pytest.mark.parametrize(("rows", "position"), [(3, 2), (3, 4), (3, 0), (5, 5), (5, -1), (5, 2**40)])
def test_a_position_out_of_range_is_refused(tmp_path, rows, position):
    path = checkpoint.write(tmp_path / "c", fields(), {"replay": replay(rows, position)})
    refused(path, f"position is {position}, expected")


@pytest.mark.parametrize(("rows", "position"), [(0, 0), (3, 3), (5, 0), (5, 4)])
def test_a_position_in_range_is_taken(tmp_path, rows, position):
    path = checkpoint.write(tmp_path / "c", fields(), {"replay": replay(rows, position)})
    assert checkpoint.read(path)[1]["replay"]["position"] == position


def header_changed(path, group, change):
    """Change the JSON header of an array file, its length and its checksum."""
    data = (path / f"{group}.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = change(json.loads(data[8 : 8 + length]))
    new = header if isinstance(header, bytes) else json.dumps(header).encode()
    sealed_array_file(path, group, len(new).to_bytes(8, "little") + new + data[8 + length :])


def entry(name, **changes):
    return lambda header: {**header, name: {**header[name], **changes}}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (entry("W:0", dtype="I32"), r"variables\.safetensors: 'W:0' is 'I32 \[2, 3\]', expected F32 \[2, 3\]"),
        (entry("W:0", shape=[6]), r"'W:0' is 'F32 \[6\]'"),
        (entry("W:0", shape=[2, 3.0]), r"'W:0'\.shape\[1\] is 3\.0: expected `int`"),
        (entry("W:0", dtype="BF16"), r"'W:0' is 'BF16"),
        (entry("W:0", data_offsets=[0, 24]), "data_offsets"),
        (entry("W:0", data_offsets=[-8, 16]), "data_offsets"),
        (entry("W:0", data_offsets=[24]), r"'W:0'\.data_offsets is .*: expected `array` of length 2"),
        (entry("W:0", data_offsets=[2**70, 2**70]), "data_offsets"),
        (entry("W:0", more=1), "unknown field `more`"),
        (lambda header: {**header, "more": header["W:0"]}, "its arrays is .* expected those of the manifest"),
        (lambda header: {"W:0": header["W:0"]}, "its arrays is"),
        (lambda header: {**header, "__metadata__": {"a": "b"}}, "its arrays is .*__metadata__"),
        (lambda header: [*header], "its arrays is"),
        (lambda header: b"null", "its arrays is None"),
        (lambda header: b"{" + b" " * 300, "brackets do not match"),
        (lambda header: b"[" * 500 + b"]" * 500, "nested deeper than"),
        (lambda header: json.dumps(header).encode().replace(b'"F32"', b"NaN"), "NaN is no number"),
        (lambda header: json.dumps(header).encode()[:-1] + b', "n": 1}', "the key 'n' twice"),
        (lambda header: json.dumps(header).encode() + b" " * 5000, "its size in bytes is"),
        (lambda header: b"\xff" * 100, "not readable as JSON"),
    ],
)
def test_a_header_is_refused(path, change, match):
    header_changed(path, "variables", change)
    refused(path, match)


@pytest.mark.parametrize("length", [0, 1, 10**6, 2**63, 2**64 - 1])
def test_a_wrong_header_length_is_refused(path, length):
    data = (path / "variables.safetensors").read_bytes()
    sealed_array_file(path, "variables", length.to_bytes(8, "little") + data[8:])
    refused(path, r"variables\.safetensors: its header|not readable as JSON")


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0" * 7, b"\0" * 8, b"\0" * 72])
def test_a_cut_file_is_refused(path, rest):
    sealed_array_file(path, "variables", rest)
    refused(path, r"variables\.safetensors: its (size|header|arrays)|not readable as JSON")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("group", "name"), [("variables", "W:0"), ("replay", "rewards"), ("replay", "observations")])
def test_what_is_not_finite_is_refused_when_read_and_when_written(tmp_path, path, group, name, value):
    groups = checkpoint.read(path)[1]
    offset = (path / f"{group}.safetensors").read_bytes().index(groups[group][name].tobytes())
    groups[group][name].reshape(-1)[1] = value
    with pytest.raises(UsageError, match=rf"{group} {name}\[.*\] is {value}.* training diverged"):
        checkpoint.write(tmp_path / "new", fields(), groups)
    assert not (tmp_path / "new").exists()
    data = bytearray((path / f"{group}.safetensors").read_bytes())
    data[offset : offset + groups[group][name].nbytes] = groups[group][name].tobytes()
    sealed_array_file(path, group, bytes(data))
    refused(path, rf"{group}\.safetensors: '{name}'\[.*\] is .*{value}.*, expected a finite number")


@pytest.mark.parametrize(
    ("changes", "groups", "match"),
    [
        ({"owed_updates": float("nan")}, {}, "not JSON compliant"),
        ({"num_timesteps": object()}, {}, "not JSON serializable"),
        ({"owed_updates": 1e7}, {}, r"manifest\.json: owed_updates is 10000000\.0"),
        ({}, {"variables": {"a": np.zeros(2, np.bool_)}}, r"\['a'\]\.dtype is 'bool'"),
        ({}, {"../variables": {}}, "outside itself"),
        ({}, {"variables": {f"{number:0500}": np.zeros(()) for number in range(2500)}}, "more than the 1048576"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(tmp_path, changes, groups, match):
    with pytest.raises(UsageError, match=f"this cannot be saved, since it could not be read again: .*{match}"):
        checkpoint.write(tmp_path / "c", fields(**changes), groups)
    assert list(tmp_path.iterdir()) == []


def test_many_arrays_are_taken(tmp_path):
    groups = {"variables": {f"network/hidden_{number}/W/Adam_1:0": np.zeros((1, 1)) for number in range(10_000)}}
    assert len(checkpoint.read(checkpoint.write(tmp_path / "c", fields(), groups))[1]["variables"]) == 10_000


# -- files --------------------------------------------------------------------------------------------


def as_link(file):
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def as_device(file):
    file.unlink()
    file.symlink_to("/dev/zero")


def as_pipe(file):
    file.unlink()
    os.mkfifo(file)


def as_directory(file):
    file.unlink()
    file.mkdir()


def as_loop(file):
    file.unlink()
    file.symlink_to(file.name)


@pytest.mark.parametrize("name", ["manifest.json", "variables.safetensors", "replay.safetensors"])
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (as_link, "symbolic link"),
        (as_device, "symbolic link"),
        (as_pipe, "pipe"),
        (as_directory, "directory"),
        (as_loop, "symbolic link"),
    ],
)
def test_only_regular_files_are_opened(path, make, kind, name):
    make(path / name)
    refused(path, rf"{name} is a {kind}, expected a regular file; take another checkpoint")


def test_a_device_is_named():
    with (
        pytest.raises(UsageError, match="/dev/zero is a device"),
        safe_json.open_regular_file(safe_json.Path("/dev/zero")),
    ):
        pass


@pytest.mark.parametrize("name", ["variables.safetensors", "manifest.json"])
def test_a_file_larger_than_it_may_be_is_not_read(path, name):
    with (path / name).open("r+b") as file:
        file.truncate(1 << 40)  # a hole: it takes no room
    refused(path, measured=True, match=rf"{name}.* 1099511627776")


def test_a_file_larger_than_memory_is_not_read(path):
    table(path, "variables", "big", shape=[1 << 37])
    with (path / "variables.safetensors").open("r+b") as file:
        file.truncate((1 << 40) + 500)
    refused(path, measured=True, match="expected no more than the memory of this machine")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "not readable as JSON"),
        (b"\xff\xfe{\0}\0", "not readable as JSON"),
        (b"{" * 100_000, "brackets do not match, or are nested deeper"),
        (b"[" * 500_000 + b"]" * 500_000, "nested deeper"),
        (b'{"a":' * 170_000 + b"1" + b"}" * 170_000, "nested deeper"),
        (b'{"a": ' + b"[" * 13 + b"]" * 13 + b"}", "nested deeper"),
        (b'{"a": "\\"[[[[[[[[[[[[[[[[[[[["}', "not the manifest"),
        (b'{"sha256": {}, "sha256": {}}', "the key 'sha256' twice"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1e999}', "'1e999' is beyond the range of floats"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "more than 39 digits"),
        (b'{"a": ["\\uD800"]}', "surrogates not allowed"),
        (b'{"sha256": {"\\ud800": 1}, "format": 3, "\\ud800": 1}', "surrogates not allowed"),
        (b'{"sha256": {}, "format": "\\ud83d\\ude00\\n"}', "has format"),
        (b"[" + b"[]," * 340_000 + b"0]", "not the manifest"),
        (b"[" + b"{}," * 340_000 + b"0]", "not the manifest"),
        (b"{" + b'"":0,' * 200_000 + b'"":0}', "the key '' twice"),
        (b'"' + b'\\"' * 500_000, "brackets|not readable"),
        (b"1" * (1 << 20), "more than 39 digits"),
        (b" " * ((1 << 20) + 1), "has 1048577 bytes, expected at most 1048576"),
        (b"null", "not the manifest"),
        (b'{"format": 2, "sha256": {}} x', "not readable as JSON"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value[:20],
)
def test_hostile_json_is_refused(path, content, match):
    (path / "manifest.json").write_bytes(content)
    refused(path, match, measured=True)


def test_a_pipe_for_a_manifest_is_no_checkpoint_to_replace(path):
    as_pipe(path / "manifest.json")
    with pytest.raises(UsageError, match=r"is a directory that holds 'manifest\.json'"):
        checkpoint.write(path, fields(), {})


def test_a_checkpoint_of_the_first_format_may_be_replaced(path):
    sealed(path, format=1)
    checkpoint.write(path, fields(num_timesteps=61), {})
    assert checkpoint.read(path)[0]["num_timesteps"] == 61


def test_a_strange_name_among_the_numbers_is_no_checkpoint(tmp_path, path):
    for name in ("²", "10"):  # a digit to str.isdigit, but not to int
        shutil.copytree(path, tmp_path / "run" / "checkpoints" / name)
    assert checkpoint.find(tmp_path / "run").name == "10"


def test_a_checkpoint_inside_a_file_is_refused(path):
    refused(path / "manifest.json", "no checkpoint at .*: it has no manifest")
