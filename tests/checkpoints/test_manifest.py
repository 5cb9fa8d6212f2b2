"""Invalid checkpoints are refused with a message that names the file, the field, the value and what was expected."""

import json
import os
import shutil
import time
import tracemalloc

import numpy as np
import pytest
from checkpoints import fields, replay, sealed, sealed_array_file
from refusals import refuses

from ddpg import UsageError
from ddpg.checkpoints import checkpoint, safe_json
from ddpg.checkpoints.space_json import restore_space

WEIGHTS = {"W:0": np.arange(6, dtype=np.float32).reshape(2, 3), "big": np.arange(3.0), "n": np.asarray(3)}


@pytest.fixture
def path(tmp_path):
    return checkpoint.write(tmp_path / "c", fields(), {"variables": WEIGHTS, "replay": replay()})


def assert_refused(path, *words, measure_memory=False):
    """Assert that reading ``path`` fails in one line with these words; limiting memory as well is slow."""
    if measure_memory:
        tracemalloc.start()
    start = time.process_time()
    try:
        with refuses(UsageError, *words) as caught:
            checkpoint.read(path)
        assert not measure_memory or tracemalloc.get_traced_memory()[1] < 100e6
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
    message = assert_refused(path, "checksum manifest_sha256")
    assert str(path / "manifest.json") in message
    assert message.endswith("take another checkpoint")


def test_key_order_and_white_space_do_not_matter(path):
    before = checkpoint.read(path)[0]
    (path / "manifest.json").write_text(json.dumps(dict(reversed(before.items())), indent=4))
    assert checkpoint.read(path)[0] == before


# -- fields -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_timesteps": "60"}, "manifest.json num_timesteps 60"),
        ({"num_timesteps": -1}, "num_timesteps -1 0"),
        ({"num_timesteps": True}, "num_timesteps True"),
        ({"num_timesteps": 60.0}, "num_timesteps 60.0"),
        ({"own_steps": -1}, "own_steps -1 0"),
        ({"own_steps": None}, "own_steps None"),
        ({"num_updates": 10**17}, "num_updates 9007199254740992"),
        ({"num_updates": None}, "num_updates None"),
        ({"owed_updates": 1e12}, "owed_updates 1000000000000.0"),
        ({"owed_updates": -0.5}, "owed_updates -0.5"),
        ({"owed_updates": 2.0**21}, "owed_updates 2097152.0"),
        ({"largest_reward": 0.5}, "largest_reward 0.5"),
        ({"largest_reward": 1e39}, "largest_reward 1e+39"),
        ({"seed": -1}, "seed -1 0"),
        ({"kind": "D\nQN"}, "kind"),
        ({"kind": ["DDPG"]}, "DDPG"),
        ({"extra": 1}, "unknown extra"),
        ({"ex\ntra\x1b[2J": 1}, "unknown"),
        ({"config": []}, "config"),
        ({"config": {}}, "config['buffer_size'] None"),
        ({"config": {"buffer_size": 5, "updates_per_call": 10**12}}, "updates_per_call 1048576"),
        ({"config": {"buffer_size": 5, "updates_per_call": 4, "hidden": [[1]]}}, "config hidden"),
        ({"config": {"buffer_size": 5, "updates_per_call": 4, "hidden": {"a": 1}}}, "config hidden"),
        ({"config": {"buffer_size": 5, "updates_per_call": 4, "batch_size": 2**60}}, "config batch_size"),
        ({"config": {"buffer_size": 2, "updates_per_call": 4}}, "rewards buffer_size 2"),
        ({"sha256": {"variables.safetensors": "0" * 64}}, "group"),
        (
            {"sha256": {"variables.safetensors": "0" * 63, "replay.safetensors": "0" * 64}},
            "sha256 variables.safetensors",
        ),
        ({"sha256": {"../x.safetensors": "0" * 64}}, "outside"),
        ({"sha256": []}, "manifest"),
        ({"format": 1}, "format 1 3"),
        ({"format": 2}, "format 2 3"),
        ({"format": [[[]]]}, "format"),
        ({"random_states": {"replay": 1}}, "random_states['replay'] 1"),
    ],
)
def test_an_invalid_field_is_refused(path, changes, match):
    sealed(path, **changes)
    assert_refused(path, match)


@pytest.mark.parametrize(
    "name", [name for name in fields() if name not in ("format", "own_steps")] + ["arrays", "manifest_sha256"]
)
def test_a_missing_field_is_refused(path, name):
    found = json.loads(text(path))
    del found[name]
    (path / "manifest.json").write_text(json.dumps(found))
    assert_refused(path, name)


def random_state(**changes):
    state = {"state": 1, "inc": 3} | {k: changes.pop(k) for k in ("state", "inc") if k in changes}
    return {"bit_generator": "PCG64", "state": state, "has_uint32": 0, "uinteger": 0, **changes}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"bit_generator": "MT19937"}, "random_states['replay'].bit_generator MT19937"),
        ({"state": 2**128}, "state.state"),
        ({"inc": -1}, "state.inc -1 0"),
        ({"inc": 4}, "state.inc 4"),
        ({"inc": 1.5}, "state.inc 1.5"),
        ({"has_uint32": 2}, "has_uint32 2 1"),
        ({"uinteger": 2**32}, "uinteger 4294967296 4294967295"),
        ({"more": 1}, "unknown more"),
    ],
)
def test_an_invalid_random_state_is_refused(path, changes, match):
    sealed(path, random_states={"replay": random_state(**changes)})
    assert_refused(path, match)


def test_an_unknown_field_of_a_generators_state_is_refused(path):
    words = {"state": 1, "inc": 3, "more": 0}
    sealed(path, random_states={"replay": random_state() | {"state": words}})
    assert_refused(path, "unknown more")


def test_the_largest_random_state_is_accepted(path):
    state = random_state(state=2**128 - 1, inc=2**128 - 1, uinteger=2**32 - 1, has_uint32=1)
    sealed(path, random_states={"replay": state})
    assert checkpoint.read(path)[0]["random_states"] == {"replay": state}


BOX = {"type": "Box", "shape": [2], "dtype": "float32", "low": -1.0, "high": [1.0, None]}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"dtype": "V1000000000"}, "observation_space.dtype V1000000000 float32"),
        ({"dtype": ">f4"}, "dtype >f4"),
        ({"dtype": "object"}, "dtype object"),
        ({"shape": [10**9]}, "observation_space.shape[0] 1000000000 8388608"),
        ({"shape": [8 << 20, 2], "low": 0.0, "high": 1.0}, "8388608"),
        ({"shape": [-1]}, "shape -1 0"),
        ({"shape": [2.0]}, "shape 2.0"),
        ({"shape": [3]}, "high bound 3 [3]"),
        ({"low": "0"}, "low 0"),
        ({"low": 1e300}, "low 1e+300 dtype float32"),
        ({"low": 2.0}, "more high"),
        ({"low": True}, "low True dtype float32"),
        ({"dtype": "uint8", "low": 0, "high": 256}, "high 256 dtype uint8"),
        ({"dtype": "uint8", "low": 0, "high": None}, "high None"),
        ({"dtype": "uint8", "low": 0.5, "high": 1}, "low 0.5"),
        ({"type": "Text"}, "Text"),
        ({"type": {}}, "type {}"),
        ({"n": 3}, "unknown n"),
    ],
)
def test_an_invalid_observation_space_is_refused(path, changes, match):
    sealed(path, observation_space={**BOX, **changes})
    assert_refused(path, match)
    with refuses(UsageError, "space"):
        restore_space({**BOX, **changes})


@pytest.mark.parametrize(
    ("space", "match"),
    [
        ({"type": "Discrete", "n": 0, "start": 0}, "action_space.n 0"),
        ({"type": "Discrete", "n": 10**10, "start": 0}, "action_space.n 10000000000"),
        ({"type": "Discrete", "n": 3, "start": 2**63}, "action_space.start"),
        ({"type": "Discrete", "n": 3}, "missing start"),
        ({"type": "Tuple", "spaces": []}, "action_space.spaces"),
        ({"type": "OneOf", "spaces": [BOX, 3]}, "action_space.spaces[1] 3"),
        ({"type": "OneOf", "spaces": [BOX, {**BOX, "low": [0]}]}, "action_space.spaces[1].low [0]"),
        ({"type": "Tuple", "spaces": [{**BOX, "shape": [8 << 18], "high": 1.0}] * 3}, "elements"),
    ],
)
def test_an_invalid_action_space_is_refused(path, space, match):
    sealed(path, action_space=space)
    assert_refused(path, match)


# -- arrays -------------------------------------------------------------------------------------------


def change_table(path, group, name, **changes):
    tables = json.loads(text(path))["arrays"]
    tables[group][name].update(changes)
    sealed(path, arrays=tables)


@pytest.mark.parametrize(
    ("group", "name", "changes", "match"),
    [
        ("variables", "W:0", {"shape": [3, 2]}, "W:0 F32 [2, 3] F32 [3, 2] manifest"),
        ("variables", "W:0", {"dtype": "int32"}, "W:0 F32 [2, 3] I32"),
        ("variables", "W:0", {"shape": [2, 4]}, "F32 [2, 4]"),
        ("variables", "W:0", {"shape": [2**40] * 4}, "size 240"),
        ("variables", "W:0", {"shape": [2**41]}, "shape[0] 2199023255552"),
        ("variables", "W:0", {"dtype": "object"}, "arrays ['W:0'].dtype object"),
        ("variables", "W:0", {"dtype": "float16"}, "dtype float16"),
        ("variables", "W:0", {"offset": 5}, "offset"),
        ("replay", "rewards", {"shape": [2, 1]}, "observations float32 [3, 2] float32 [2, 2]"),
        ("replay", "rewards", {"shape": []}, "float32"),
        ("replay", "actions", {"shape": [2, 1]}, "actions float32 3"),
        ("replay", "observations", {"dtype": "uint8"}, "observations uint8"),
        ("replay", "terminated", {"dtype": "float32"}, "terminated float32 uint8 [3, 1]"),
        ("replay", "last_observations", {"shape": [4, 2]}, "last_observations 3"),
        ("replay", "last_observations", {"shape": [2, 1]}, "last_observations float32 [2, 2]"),
        ("replay", "last_observations", {"shape": []}, "last_observations float32 [2]"),
        ("replay", "successors", {"shape": [3, 1]}, "successors int32 [3]"),
        ("replay", "successors", {"dtype": "float32"}, "successors int32 [3]"),
        ("replay", "position", {"shape": [1]}, "position int64"),
        ("replay", "position", {"dtype": "float64"}, "position int64"),
    ],
)
def test_an_invalid_array_table_is_refused(path, group, name, changes, match):
    change_table(path, group, name, **changes)
    assert_refused(path, match)


def test_array_files_without_a_table_are_refused(path):
    sealed(path, arrays={"variables": json.loads(text(path))["arrays"]["variables"]})
    assert_refused(path, "arrays ['variables']")


def test_a_misnamed_replay_array_is_refused(path):
    tables = json.loads(text(path))["arrays"]
    tables["replay"]["actoins"] = tables["replay"].pop("actions")
    sealed(path, arrays=tables)
    assert_refused(path, "arrays ['replay']")


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"priorities": np.ones(3)}, "neither"),
        ({"priorities": np.ones((3, 1)), "largest_priority": np.asarray(1.0)}, "priorities float64 [3]"),
        ({"priorities": np.ones(3), "largest_priority": np.ones(1)}, "largest_priority float64"),
    ],
)
def test_invalid_priorities_are_refused(tmp_path, arrays, match):
    with refuses(UsageError, match):
        checkpoint.write(tmp_path / "c", fields(), {"replay": replay() | arrays})


@pytest.mark.parametrize(("rows", "position"), [(3, 2), (3, 4), (3, 0), (5, 5), (5, -1), (5, 2**40)])
def test_a_position_out_of_range_is_refused(tmp_path, rows, position):
    path = checkpoint.write(tmp_path / "c", fields(), {"replay": replay(rows, position)})
    assert_refused(path, f"position {position}")


@pytest.mark.parametrize(("rows", "position"), [(0, 0), (3, 3), (5, 0), (5, 4)])
def test_a_position_in_range_is_accepted(tmp_path, rows, position):
    path = checkpoint.write(tmp_path / "c", fields(), {"replay": replay(rows, position)})
    assert checkpoint.read(path)[1]["replay"]["position"] == position


def change_header(path, group, change):
    """Change the JSON header of an array file, its length and its checksum."""
    data = (path / f"{group}.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = change(json.loads(data[8 : 8 + length]))
    new = header if isinstance(header, bytes) else json.dumps(header).encode()
    sealed_array_file(path, group, len(new).to_bytes(8, "little") + new + data[8 + length :])


def change_entry(name, **changes):
    return lambda header: {**header, name: {**header[name], **changes}}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (change_entry("W:0", dtype="I32"), "variables.safetensors W:0 I32 [2, 3] F32 [2, 3]"),
        (change_entry("W:0", shape=[6]), "W:0 F32 [6]"),
        (change_entry("W:0", shape=[2, 3.0]), "W:0 shape[1] 3.0"),
        (change_entry("W:0", dtype="BF16"), "W:0 BF16"),
        (change_entry("W:0", data_offsets=[0, 24]), "data_offsets"),
        (change_entry("W:0", data_offsets=[-8, 16]), "data_offsets"),
        (change_entry("W:0", data_offsets=[24]), "W:0 data_offsets length 2"),
        (change_entry("W:0", data_offsets=[2**70, 2**70]), "data_offsets"),
        (change_entry("W:0", more=1), "unknown more"),
        (lambda header: {**header, "more": header["W:0"]}, "manifest"),
        (lambda header: {"W:0": header["W:0"]}, "arrays"),
        (lambda header: {**header, "__metadata__": {"a": "b"}}, "__metadata__"),
        (lambda header: [*header], "arrays"),
        (lambda header: b"null", "arrays None"),
        (lambda header: b"{" + b" " * 300, "brackets"),
        (lambda header: b"[" * 500 + b"]" * 500, "nested"),
        (lambda header: json.dumps(header).encode().replace(b'"F32"', b"NaN"), "NaN"),
        (lambda header: json.dumps(header).encode()[:-1] + b', "n": 1}', "n"),
        (lambda header: json.dumps(header).encode() + b" " * 5000, "size"),
        (lambda header: b"\xff" * 100, "JSON"),
    ],
)
def test_an_invalid_header_is_refused(path, change, match):
    change_header(path, "variables", change)
    assert_refused(path, match)


@pytest.mark.parametrize("length", [0, 1, 10**6, 2**63, 2**64 - 1])
def test_a_wrong_header_length_is_refused(path, length):
    data = (path / "variables.safetensors").read_bytes()
    sealed_array_file(path, "variables", length.to_bytes(8, "little") + data[8:])
    assert_refused(path)


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0" * 7, b"\0" * 8, b"\0" * 72])
def test_a_truncated_file_is_refused(path, rest):
    sealed_array_file(path, "variables", rest)
    assert_refused(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("group", "name"), [("variables", "W:0"), ("replay", "rewards"), ("replay", "observations")])
def test_non_finite_numbers_are_neither_read_nor_written(tmp_path, path, group, name, value):
    groups = checkpoint.read(path)[1]
    offset = (path / f"{group}.safetensors").read_bytes().index(groups[group][name].tobytes())
    groups[group][name].reshape(-1)[1] = value
    with refuses(UsageError, group, name, value, "diverged"):
        checkpoint.write(tmp_path / "new", fields(), groups)
    assert not (tmp_path / "new").exists()
    data = bytearray((path / f"{group}.safetensors").read_bytes())
    data[offset : offset + groups[group][name].nbytes] = groups[group][name].tobytes()
    sealed_array_file(path, group, bytes(data))
    assert_refused(path, f"{group}.safetensors {name} {value}")


@pytest.mark.parametrize(
    ("changes", "groups", "match"),
    [
        ({"owed_updates": float("nan")}, {}, "JSON"),
        ({"num_timesteps": object()}, {}, "JSON"),
        ({"owed_updates": 1e7}, {}, "manifest.json owed_updates 10000000.0"),
        ({}, {"variables": {"a": np.zeros(2, np.bool_)}}, "['a'].dtype bool"),
        ({}, {"../variables": {}}, "outside"),
        ({}, {"variables": {f"{number:0500}": np.zeros(()) for number in range(2500)}}, "more 1048576 most arrays"),
    ],
)
def test_unreadable_checkpoints_are_not_written(tmp_path, changes, groups, match):
    with refuses(UsageError, match):
        checkpoint.write(tmp_path / "c", fields(**changes), groups)
    assert list(tmp_path.iterdir()) == []


def test_ten_thousand_arrays_are_accepted(tmp_path):
    groups = {"variables": {f"network/hidden_{number}/W/Adam_1:0": np.zeros((1, 1)) for number in range(10_000)}}
    assert len(checkpoint.read(checkpoint.write(tmp_path / "c", fields(), groups))[1]["variables"]) == 10_000


# -- files --------------------------------------------------------------------------------------------


def test_a_missing_array_file_is_named(path):
    (path / "variables.safetensors").unlink()
    assert_refused(path, "variables.safetensors")


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
    assert_refused(path, name, kind)


def test_a_device_is_named():
    with refuses(UsageError, "/dev/zero"), safe_json.open_regular_file(safe_json.Path("/dev/zero")):
        pass


def test_a_file_that_becomes_a_pipe_while_it_is_opened_is_refused(tmp_path, monkeypatch):
    path, lstat = tmp_path / "file", os.lstat
    path.write_bytes(b"{}")

    def replaced_afterwards(name):
        found = lstat(name)
        path.unlink()
        os.mkfifo(path)
        return found

    monkeypatch.setattr(safe_json.os, "lstat", replaced_afterwards)
    with refuses(UsageError, "file pipe"), safe_json.open_regular_file(path):
        pass


@pytest.mark.parametrize("name", ["variables.safetensors", "manifest.json"])
def test_a_file_above_the_size_limit_is_not_read(path, name):
    with (path / name).open("r+b") as file:
        file.truncate(1 << 40)  # a sparse file, which takes no space
    assert_refused(path, f"{name} 1099511627776", measure_memory=True)


def test_a_file_larger_than_memory_is_not_read(path):
    change_table(path, "variables", "big", shape=[1 << 37])
    with (path / "variables.safetensors").open("r+b") as file:
        file.truncate((1 << 40) + 500)
    assert_refused(path, "memory", measure_memory=True)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "JSON"),
        (b"\xff\xfe{\0}\0", "JSON"),
        (b"{" * 100_000, "nested"),
        (b"[" * 500_000 + b"]" * 500_000, "nested"),
        (b'{"a":' * 170_000 + b"1" + b"}" * 170_000, "nested"),
        (b'{"a": ' + b"[" * 13 + b"]" * 13 + b"}", "nested"),
        (b'{"a": "\\"[[[[[[[[[[[[[[[[[[[["}', "manifest"),
        (b'{"sha256": {}, "sha256": {}}', "sha256"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1e999}', "1e999 beyond"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "39"),
        (b'{"a": ["\\uD800"]}', "allowed"),
        (b'{"sha256": {"\\ud800": 1}, "format": 3, "\\ud800": 1}', "allowed"),
        (b'{"sha256": {}, "format": "\\ud83d\\ude00\\n"}', "format"),
        (b"[" + b"[]," * 340_000 + b"0]", "manifest"),
        pytest.param(b"[" + b"{}," * 340_000 + b"0]", "manifest", marks=pytest.mark.slow),
        (b"{" + b'"":0,' * 200_000 + b'"":0}', "twice"),
        (b'"' + b'\\"' * 500_000, ""),
        (b"1" * (1 << 20), "39"),
        (b" " * ((1 << 20) + 1), "1048577 1048576"),
        (b"null", "manifest"),
        (b'{"format": 2, "sha256": {}} x', "JSON"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value[:20],
)
def test_hostile_json_is_refused(path, content, match):
    (path / "manifest.json").write_bytes(content)
    assert_refused(path, match, measure_memory=True)


def test_a_checkpoint_with_a_pipe_as_manifest_is_not_replaced(path):
    as_pipe(path / "manifest.json")
    with refuses(UsageError, "manifest.json"):
        checkpoint.write(path, fields(), {})


def test_a_checkpoint_of_the_first_format_may_be_replaced(path):
    sealed(path, format=1)
    checkpoint.write(path, fields(num_timesteps=61), {})
    assert checkpoint.read(path)[0]["num_timesteps"] == 61


def test_a_directory_whose_name_is_no_decimal_number_is_no_checkpoint(tmp_path, path):
    for name in ("²", "10"):  # a digit to str.isdigit, but not to int
        shutil.copytree(path, tmp_path / "run" / "checkpoints" / name)
    assert checkpoint.find(tmp_path / "run").name == "10"


def test_a_checkpoint_inside_a_file_is_refused(path):
    assert_refused(path / "manifest.json", "manifest")
