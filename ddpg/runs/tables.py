"""The CSV tables of a run: rows are appended so that other programs can read them, and read so that damage is named."""

import contextlib
import csv
import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ddpg.checkpoints import atomic_write, safe_json
from ddpg.errors import FileFault, with_filename

_LONGEST = 65_536  # maximum bytes of a line in a table, so that a damaged file is not read into memory whole
# The columns of each table that have a number in every row, besides timesteps.
_ALWAYS = {"metrics.csv": ("seconds",), "episodes.csv": ("return",), "evaluations.csv": ("mean_return",)}


class CSVTable:
    """A CSV file to which rows are appended; other programs can read it after every row.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, columns: list[str], keep_until: int):
        """Open ``path``, keeping existing rows up to ``keep_until`` timesteps, including columns not in ``columns``."""
        kept = [row for row in read_table(path) if int(row["timesteps"]) <= keep_until]
        self.path, self._columns = path, list(dict.fromkeys([*columns, *(kept[0] if kept else ())]))
        head, rows = io.StringIO(newline=""), io.StringIO(newline="")
        _writer(head, self._columns).writeheader()
        _writer(rows, self._columns).writerows(kept)
        atomic_write.write_text(path, head.getvalue() + rows.getvalue())
        self._sum = hashlib.sha256(rows.getvalue().encode())
        self._file = path.open("ab", buffering=0)

    def add(self, row: dict[str, Any]) -> None:
        """Append a row; if the write fails, no part of the row stays in the file."""
        text = io.StringIO(newline="")
        _writer(text, self._columns).writerow({name: _cell(value) for name, value in row.items()})
        row_bytes = data = text.getvalue().encode()
        end = os.fstat(self._file.fileno()).st_size
        with with_filename(self.path):
            try:
                while data:
                    data = data[self._file.write(data) :]
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(end)
                raise
        self._sum.update(row_bytes)

    def digest(self) -> bytes:
        """Return the SHA-256 of the rows."""
        return self._sum.digest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _writer(file: Any, columns: list[str]) -> csv.DictWriter:
    return csv.DictWriter(file, columns, restval="", extrasaction="ignore", lineterminator="\n")


def _cell(value: Any) -> Any:
    # All digits are written, so that reading the cell gives the same float.
    return repr(float(value)) if isinstance(value, float) else value


def read_table(path: Path) -> list[dict[str, str]]:
    """Return a CSV file's rows; none if it does not exist. An incomplete last row of a killed process is left out.

    Raises:
        FileFault: if it is not a regular file, a row has too many or too few cells, a cell is not a number, a required
            number is missing, or the steps decrease. The message names file, line and column.
    """
    rows: list[dict[str, str]] = []
    numbered = [0]
    always = ("timesteps", *_ALWAYS.get(path.name, ()))
    with (
        contextlib.suppress(FileNotFoundError),
        safe_json.advising("move it away"),
        safe_json.open_regular_file(path) as (file, _),
    ):
        try:
            reader = csv.reader(_lines(file, numbered))
            columns = next(reader, [])
            missing = [name for name in always if name not in (columns or always)]
            if missing:
                raise ValueError(f"it has no column {missing[0]}")
            for cells in filter(None, reader):
                if len(cells) != len(columns):
                    raise ValueError(f"its number of cells is {len(cells)}, expected {len(columns)}")
                row = dict(zip(columns, cells, strict=True))
                _check_row(row, rows, always)
                rows.append(row)
        except (ValueError, csv.Error) as error:
            where, why = f"{path} line {numbered[0]}", safe_json.one_line(str(error))
            advice = "remove it" if numbered[0] > 1 else "move the file away"
            raise FileFault(f"{where} is damaged ({why}); mend the line, or {advice}") from None
    return rows


def _lines(file: BinaryIO, numbered: list[int]) -> Iterator[str]:
    """Yield lines, and count them in ``numbered``; a last line without its newline is left out."""
    while line := file.readline(_LONGEST + 1):
        numbered[0] += 1
        if len(line) > _LONGEST:
            raise ValueError(f"longer than {_LONGEST} bytes")
        if not line.endswith(b"\n"):
            return
        yield line.decode(errors="replace")


def _check_row(row: dict[str, str], before: list[dict[str, str]], always: Sequence[str]) -> None:
    for name, cell in row.items():
        try:
            if cell or name in always:
                float(cell)
        except ValueError:
            raise ValueError(f"{name} is {safe_json.short_repr(cell)}, expected a number") from None
    timesteps = int(row["timesteps"])
    if (before and timesteps < int(before[-1]["timesteps"])) or timesteps < 0:
        raise ValueError(f"timesteps {timesteps} after {before[-1]['timesteps'] if before else 0}")
