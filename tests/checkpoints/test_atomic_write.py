"""Small files that are replaced whole or not at all."""

import pytest
from matplotlib.figure import Figure
from refusals import refuses

from ddpg.checkpoints import atomic_write


@pytest.mark.parametrize(
    ("name", "begins"), [("a.png", b"\x89PNG"), ("a.PDF", b"%PDF"), ("a.svg", b"<?xml"), ("a", b"\x89PNG")]
)
def test_a_picture_is_of_the_kind_that_its_name_says(name, begins, tmp_path):
    assert atomic_write.write_figure(tmp_path / name, Figure((1, 1))) == tmp_path / name
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_who_reads_a_picture_while_it_is_drawn_again_reads_the_old_one(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        atomic_write.write_figure(path, Figure((1, 1)))
        assert reader.read() == b"old"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_does_not_fit_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_write.os, "fsync", full)
    with refuses(OSError, "No space") as caught:
        atomic_write.write_figure(path, Figure((1, 1)))
    assert caught.value.filename == str(path)
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("a.png", b"old")]


def test_a_folder_that_is_not_there_is_told_of_the_picture(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        atomic_write.write_figure(tmp_path / "none" / "a.png", Figure((1, 1)))
    assert caught.value.filename == str(tmp_path / "none" / "a.png")


def test_text_is_written_as_it_is(tmp_path):
    atomic_write.write_text(tmp_path / "a", "∇\r\n1\n")
    assert (tmp_path / "a").read_bytes() == "∇\r\n1\n".encode()
