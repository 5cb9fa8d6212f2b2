"""TOML files that are not options are refused in one line, before they take time or memory."""

import os
import subprocess
import sys

import pytest

from ddpg.cli.main import main
from ddpg.config.toml_file import MAX_BYTES, MAX_DEPTH, read_toml
from ddpg.errors import UsageError

# The file's text, and a word of the error message.
HOSTILE = {
    "5001 digits": ("batch_size = 1" + "0" * 5000, "digits"),
    "20000 hexadecimal digits": ("batch_size = 0x" + "f" * 20_000, "batch_size"),
    "65 bits": (f"batch_size = {2**63}", str(2**63)),
    "65 bits in a list": (f"hidden = [[64, {-(2**63) - 1}]]", str(-(2**63) - 1)),
    "5000 brackets": ("hidden = " + "[" * 5000 + "]" * 5000, "nested"),
    "500 brackets": ("hidden = " + "[" * 500 + "]" * 500, "nested"),
    "5000 braces": ("hidden = " + "{a=" * 5000 + "1" + "}" * 5000, "nested"),
    "20000 dotted keys": ("a." * 20_000 + "a = 1", "parts"),
    "a table of 20000 parts": ("[" + "a . " * 20_000 + "a]", "parts"),
    "20000 quoted parts": ('"a".' * 20_000 + "a = 1", "parts"),
    "an opened string": ('a = """' + '\\"""' * 50_000, "TOML"),
    "many opened strings": ("a = '" + '"' * 100_000, "TOML"),
    "one long word": ("a" * 200_000, "TOML"),
    "spaces": ("a" + " " * 200_000 + ".", "TOML"),
    "too large": ("# " + "x" * MAX_BYTES, str(MAX_BYTES)),
    "no TOML": ("batch_size 64", "TOML"),
    "a null": ("batch_size = 64\0", "TOML"),
}


@pytest.mark.parametrize(("text", "word"), HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_files_are_a_short_one_line_error(tmp_path, text, word):
    path = tmp_path / "options.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_toml(path)
    assert str(path) in str(refused.value)
    assert word in str(refused.value)
    assert len(str(refused.value)) < 1000
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "command", [["train", "Pendulum-v1", "--config"], ["train", "Pendulum-v1", "--recipe"], ["study"]]
)
@pytest.mark.parametrize("kind", ["pipe", "device", "link to a device", "directory", "integer", "keys"])
def test_commands_exit_with_status_2(tmp_path, monkeypatch, capsys, command, kind):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "options.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = "/dev/zero"
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_text(HOSTILE["5001 digits" if kind == "integer" else "20000 dotted keys"][0])
    assert main([*command, str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("ddpg: error: ")
    assert error.count("\n") == 1


def test_opening_a_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "options.toml")
    code = "import sys; from ddpg.config.toml_file import read_toml; read_toml(sys.argv[1])"
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "options.toml")], capture_output=True, timeout=60, check=False
    )
    assert b"UsageError" in ended.stderr
    assert ended.stderr.splitlines()[-1].count(b"give the path of a TOML file") == 1


def test_a_byte_order_mark_is_ignored(tmp_path):
    path = tmp_path / "options.toml"
    path.write_bytes(b"\xef\xbb\xbfbatch_size = 64\r\n")
    assert read_toml(path) == {"batch_size": 64}


def test_brackets_and_dots_in_strings_do_not_count_as_nesting(tmp_path):
    path = tmp_path / "options.toml"
    text = "[" * 100 + "a." * 100
    path.write_text(f'# {text}\na = \'{text}\'\nb = "{text}"\nc = \'\'\'\n{text}\'\'\'\nd = """\n{text}\\""""\n')
    assert read_toml(path) == {"a": text, "b": text, "c": text, "d": f'{text}"'}


def test_the_deepest_accepted_nesting(tmp_path):
    path = tmp_path / "options.toml"
    path.write_text("[" + ".".join("a" * MAX_DEPTH) + "]")
    assert list(read_toml(path)) == ["a"]
    path.write_text("a = " + "[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert list(read_toml(path)) == ["a"]


def test_a_link_to_a_regular_file_is_followed(tmp_path):
    (tmp_path / "there.toml").write_text("batch_size = 64")
    (tmp_path / "here.toml").symlink_to("there.toml")
    assert read_toml(tmp_path / "here.toml") == {"batch_size": 64}
