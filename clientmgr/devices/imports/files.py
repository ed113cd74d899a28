"""Reads files of devices row by row: CSV, JSON lines, Parquet. What is no row is an error of that row alone."""

import csv
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, AnyStr, Final, Generic, Literal, get_args

import msgspec

from clientmgr.base.csv_cells import as_written
from clientmgr.base.errors import InvalidInputError
from clientmgr.devices.imports import parquet_rows

Format = Literal["csv", "ndjson", "parquet"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
ENDINGS: Final[dict[str, Format]] = {
    ".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson", ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
LONGEST_CELL: Final = 16 * 1024 * 1024
"""And the longest line of a text file. What is longer is passed over and never held."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as it stands in the file. `problem`: why it is none."""

    line: int
    """In a text file the line that it ends on; in Parquet its number."""
    columns: Sequence[str]
    values: Sequence[Any]
    problem: str | None = None


def format_of(file: Path, given: Format | None) -> Format:
    found = given or ENDINGS.get(file.suffix.lower())
    if found is None:
        raise InvalidInputError(
            "--format", f"one of {', '.join(FORMATS)}, for the name {file.name} does not say", given
        )
    return found


def digest_of(file: Path) -> str:
    """What tells this file from any other of the same name."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_rows(file: Path, form: Format, *, delimiter: str = ",") -> Iterator[RawRow]:
    """All rows in their order: the same at each reading."""
    match form:
        case "csv":
            return _read_csv(file, delimiter)
        case "ndjson":
            return _read_ndjson(file)
        case _:
            return _read_parquet(file)


def header_of(file: Path, form: Format, *, delimiter: str = ",") -> Sequence[str] | None:
    """The file's columns; None: each row has its own."""
    if form == "parquet":
        return parquet_rows.column_names(file)
    if form == "csv":
        csv.field_size_limit(LONGEST_CELL)
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            try:
                header = next(csv.reader(_Lines(stream), delimiter=delimiter), None)
            except csv.Error as error:
                raise InvalidInputError("FILE", f"a first line that names the columns ({error})", file.name) from None
        if not header:
            raise InvalidInputError("FILE", "a first line that names the columns", file.name)
        return [as_written(name) for name in header]
    return None


def _read_csv(file: Path, delimiter: str) -> Iterator[RawRow]:
    csv.field_size_limit(LONGEST_CELL)
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        reader = csv.reader(_Lines(stream), delimiter=delimiter)
        header = [as_written(name) for name in next(reader, [])]
        width = len(header)
        while True:
            try:
                row = next(reader, None)
            except csv.Error as error:
                yield RawRow(reader.line_num, (), (), f"row: {error}")
                continue
            if row is None:
                return
            if len(row) == width:
                yield RawRow(reader.line_num, header, [as_written(cell) for cell in row])
            elif row:  # else an empty line
                yield RawRow(reader.line_num, header, row, f"row: expected {width} columns, got {len(row)}")


def _read_ndjson(file: Path) -> Iterator[RawRow]:
    decode = msgspec.json.Decoder().decode
    with file.open("rb") as stream:
        lines = _Lines(stream)
        for number in itertools.count(1):
            try:
                line = next(lines, None)
            except _LongLineError as error:
                yield RawRow(number, (), ("…",), f"row: {error}")
                continue
            if line is None:
                return
            if not line.strip():
                continue
            try:
                row = decode(line.removeprefix(b"\xef\xbb\xbf"))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                yield RawRow(
                    number, (), (line.decode(errors="replace").rstrip("\n"),), f"row: not JSON in UTF-8 ({error})"
                )
                continue
            if isinstance(row, dict):
                yield RawRow(number, tuple(row), tuple(row.values()))
            else:
                text = line.decode(errors="replace").rstrip("\n")
                yield RawRow(number, (), (text,), f"row: expected a JSON object, got {type(row).__name__}")


def _read_parquet(file: Path) -> Iterator[RawRow]:
    number = 0
    for columns, rows in parquet_rows.portions(file):
        for values in rows:
            number += 1
            yield RawRow(number, columns, values)


class _LongLineError(csv.Error):
    """So that a reader of CSV takes it for one of its own."""


class _Lines(Generic[AnyStr]):
    """The lines of a file, for each that is too long an error: what follows it can be read all the same."""

    def __init__(self, stream: IO[AnyStr]) -> None:
        self._stream: IO[AnyStr] = stream

    def __iter__(self) -> "_Lines[AnyStr]":
        return self

    def __next__(self) -> AnyStr:
        line: AnyStr = self._stream.readline(LONGEST_CELL + 1)
        if not line:
            raise StopIteration
        if len(line) <= LONGEST_CELL:
            return line
        while line and line[-1:] not in ("\n", "\r", b"\n"):
            line = self._stream.readline(65_536)
        raise _LongLineError(f"line longer than {LONGEST_CELL:,}")
