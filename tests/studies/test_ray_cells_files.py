"""Copying a cell's files from a Ray node: only changes are sent, and a partial copy is never inconsistent."""

from ddpg.studies import ray_cells
from ddpg.studies.ray_cells import ChangeTracker, FileChanges, apply_changes


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def checkpoint(run, steps, text):
    write(run / "checkpoints" / str(steps), **{"a.safetensors": text, "manifest.json": text})


def test_each_change_is_reported_once(tmp_path):
    tracker = ChangeTracker(tmp_path)
    write(tmp_path, log="a", one__rows="1", one__checkpoints__0__x="0")
    write(tmp_path, **{".lock": "", "one__.owner.json": "{}", ".half__x": "1"})
    first = tracker.changes()
    assert first.files == {"log": b"a", "one/rows": b"1", "one/checkpoints/0/x": b"0"}
    assert tracker.changes() == FileChanges({}, [])
    write(tmp_path, one__rows="12", one__checkpoints__5__x="5")
    (tmp_path / "one" / "checkpoints" / "0" / "x").unlink()
    assert tracker.changes() == FileChanges({"one/rows": b"12", "one/checkpoints/5/x": b"5"}, ["one/checkpoints/0/x"])
    write(tmp_path, log="b!")
    tracker.mark_sent()
    assert tracker.changes() == FileChanges({}, [])


def test_applying_all_changes_makes_the_folders_equal(tmp_path):
    far, near = tmp_path / "far", tmp_path / "near"
    tracker = ChangeTracker(far)
    for steps in (0, 5, 10):
        checkpoint(far / "1", steps, str(steps))
        checkpoint(far / "1", "best", str(steps))
        write(far / "1", **{"metrics.csv": "x" * steps, "config.json": "{}"})
        write(far, **{"log.txt": "y" * steps})
        if steps == 10:
            for path in (far / "1" / "checkpoints" / "0").iterdir():
                path.unlink()
        apply_changes(near, tracker.changes())
        assert contents(near) == contents(far)
    assert not (near / "1" / "checkpoints" / "0").exists()


def test_tables_are_read_after_checkpoints(tmp_path, monkeypatch):
    """A row written in between may arrive before its checkpoint, but never a checkpoint before its rows."""
    read, write_rows = ray_cells.Path.read_bytes, []

    def reading(path):
        if not write_rows:
            write_rows.append(path)
            write(tmp_path, **{"metrics.csv": "longer"})
        return read(path)

    checkpoint(tmp_path, 5, "5")
    write(tmp_path, **{"metrics.csv": "row"})
    tracker = ChangeTracker(tmp_path)
    monkeypatch.setattr(ray_cells.Path, "read_bytes", reading)
    assert tracker.changes().files["metrics.csv"] == b"longer"
    assert "checkpoints" in write_rows[0].parts
    # Sent again, since its time stamp was read before the write.
    assert tracker.changes().files == {"metrics.csv": b"longer"}


def test_a_checkpoint_that_changes_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    read, changed = ray_cells.Path.read_bytes, []

    def reading(path):
        found = read(path)
        if not changed:
            changed.append(path)
            checkpoint(tmp_path, "best", "newer")
        return found

    checkpoint(tmp_path, "best", "old")
    monkeypatch.setattr(ray_cells.Path, "read_bytes", reading)
    assert {*ChangeTracker(tmp_path).changes().files.values()} == {b"newer"}


def test_wherever_applying_is_cut_short_each_manifest_has_its_arrays(tmp_path, monkeypatch):
    """A run's ``config.json`` comes last; a run without it is not resumed."""
    far = tmp_path / "far"
    checkpoint(far / "1", 0, "first")
    checkpoint(far / "1", "best", "first")
    write(far / "1", **{"config.json": "{}", "metrics.csv": "1"})
    tracker = ChangeTracker(far)
    first = tracker.changes()
    checkpoint(far / "1", "best", "second")
    checkpoint(far / "1", 5, "second")
    for path in (far / "1" / "checkpoints" / "0").iterdir():
        path.unlink()
    write(far / "1", **{"metrics.csv": "12"})
    second = tracker.changes()
    real_write, real_unlink = ray_cells._write, ray_cells.Path.unlink

    class CutError(Exception):
        pass

    for changes, before in ((first, None), (second, first)):
        for cut in range(20):
            near = tmp_path / f"near{cut}-{changes is first}"
            near.mkdir()
            if before is not None:
                apply_changes(near, before)
            done = [0]

            def counted(act, done=done, cut=cut):
                def acting(*arguments, **how):
                    done[0] += 1
                    if done[0] > cut:
                        raise CutError
                    return act(*arguments, **how)

                return acting

            with monkeypatch.context() as patched:
                patched.setattr(ray_cells, "_write", counted(real_write))
                patched.setattr(ray_cells.Path, "unlink", counted(real_unlink))
                try:
                    apply_changes(near, changes)
                except CutError:
                    complete = False
                else:
                    complete = True
            found = contents(near)
            for name, text in found.items():
                if name.endswith("manifest.json"):
                    assert found[name.replace("manifest.json", "a.safetensors")] == text
            if "1/config.json" in found and before is None:
                assert "1/checkpoints/0/manifest.json" in found
            if complete:
                assert found == (
                    contents(far) if before is not None else {k: v.decode() for k, v in first.files.items()}
                )
                break
        else:
            raise AssertionError("no copy was complete")


def test_a_log_is_overwritten_in_place(tmp_path):
    """A process that has locked the log keeps its lock."""
    write(tmp_path, **{"log.txt": "a", "rows.csv": "a"})
    before = (tmp_path / "log.txt").stat().st_ino
    apply_changes(tmp_path, FileChanges({"log.txt": b"ab", "rows.csv": b"ab"}, []))
    assert (tmp_path / "log.txt").stat().st_ino == before
    assert contents(tmp_path) == {"log.txt": "ab", "rows.csv": "ab"}
