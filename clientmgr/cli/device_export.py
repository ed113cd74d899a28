"""The forms of `clientmgr devices export`, and the file it goes to: written beside its place, readable by its owner.

`clientmgr devices import` reads all of them.
"""

import csv
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import msgspec

from clientmgr.base.csv_cells import harmless
from clientmgr.contracts.device_fields import FIELDS, Kind

Rows = Sequence[tuple[Any, ...]]
Write = Callable[[Rows], None]

JSON_COLUMNS = tuple(
    field.name for field in FIELDS if field.exported and field.kind is Kind.JSON and not field.exported_members
)
"""They come as JSON text."""


@contextmanager
def opened_output(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears under its name when it is complete, and else not at all."""
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    # It holds personal data: nobody else is to read it.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
            yield stream
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def csv_writer(stream: TextIO, columns: Sequence[str]) -> Iterator[Write]:
    """RFC 4180 with a header; times in ISO 8601, booleans as true and false, nothing for null, no formulas."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)

    def write(rows: Rows) -> None:
        writer.writerows([_csv_cell(value) for value in row] for row in rows)

    yield write


@contextmanager
def ndjson_writer(stream: TextIO, columns: Sequence[str]) -> Iterator[Write]:
    """An object a line."""
    json_places = [columns.index(name) for name in JSON_COLUMNS]

    def write(rows: Rows) -> None:
        lines = []
        for row in rows:
            values = list(row)
            for place in json_places:
                if values[place] is not None:
                    values[place] = msgspec.Raw(values[place].encode())
            lines.append(msgspec.json.encode(dict(zip(columns, values, strict=True))))
        stream.write(b"\n".join([*lines, b""]).decode())

    yield write


@contextmanager
def parquet_writer(stream: TextIO, columns: Sequence[str]) -> Iterator[Write]:
    """Typed columns, compressed; JSON as text."""
    # It takes a while to import, and most exports are in another form.
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {Kind.BOOLEAN: pa.bool_(), Kind.INTEGER: pa.int64(), Kind.TIME: pa.timestamp("us", tz="UTC")}
    kinds = {field.name: field.kind for field in FIELDS}
    schema = pa.schema([(name, types.get(kinds.get(name, Kind.TEXT), pa.string())) for name in columns])
    with pq.ParquetWriter(stream.buffer, schema, compression="zstd") as writer:

        def write(rows: Rows) -> None:
            arrays = [
                pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))

        yield write


EXPORTERS: dict[str, Callable[[TextIO, Sequence[str]], AbstractContextManager[Write]]] = {
    "csv": csv_writer,
    "ndjson": ndjson_writer,
    "parquet": parquet_writer,
}


def _csv_cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bool):
        return "true" if value else "false"
    return harmless(value)
