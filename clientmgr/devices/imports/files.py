"""Reads files of devices row by row: CSV, JSON lines, Parquet. What is no row is an error of that row alone."""

import csv
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from clientmgr.base.csv_cells import as_written
from clientmgr.base.errors import InvalidInputError

Format = Literal["csv", "ndjson", "parquet"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
ENDINGS: Final[dict[str, Format]] = {
    ".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson", ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
LONGEST_CELL: Final = 16 * 1024 * 1024
ROWS_A_READ: Final = 5000


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
        return list(_parquet(file).schema_arrow.names)
    if form == "csv":
        csv.field_size_limit(LONGEST_CELL)
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            try:
                header = next(csv.reader(stream, delimiter=delimiter), None)
            except csv.Error as error:
                raise InvalidInputError("FILE", f"a first line that names the columns ({error})", file.name) from None
        if not header:
            raise InvalidInputError("FILE", "a first line that names the columns", file.name)
        return [as_written(name) for name in header]
    return None


def _read_csv(file: Path, delimiter: str) -> Iterator[RawRow]:
    csv.field_size_limit(LONGEST_CELL)
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter)
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
        for number, line in enumerate(stream, start=1):
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
    batches = _parquet(file).iter_batches(batch_size=ROWS_A_READ)
    while True:
        try:
            batch = next(batches, None)
        except OSError as error:  # Arrow's word for pages that are damaged
            raise InvalidInputError("FILE", f"a whole Parquet file; after row {number}: {error}", file.name) from None
        if batch is None:
            return
        columns = batch.schema.names
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            number += 1
            yield RawRow(number, columns, values)


def _parquet(file: Path) -> Any:
    # It takes a while to import, and most commands read no Parquet.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(file)
    except pa.ArrowException as error:
        raise InvalidInputError("FILE", f"a Parquet file ({error})", file.name) from None
