"""What an import leaves beside its file: how far it is, so that the next one goes on there, and the rows it rejected.

Both hold or describe personal data: they are readable by their owner alone. Rows that were written twice do no harm,
so the record may lag behind the database by a batch and never runs ahead of it.
"""

import csv
import io
import os
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct, field

from clientmgr.base.csv_cells import harmless
from clientmgr.base.private_files import write_private
from clientmgr.devices.imports.columns import REJECTED_LINE, REJECTED_REASON
from clientmgr.devices.imports.files import Format, RawRow


class ImportTotals(Struct, rename="camel"):
    """What became of the rows so far."""

    rows: int = 0
    imported: int = 0
    rejected: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Of the rejected ones, by field."""

    def reject(self, reason: str) -> None:
        self.rejected += 1
        name = reason.partition(":")[0]
        self.reasons[name] = self.reasons.get(name, 0) + 1


class Progress(Struct, rename="camel"):
    """How far an import is. It belongs to one file, as it is now, and one set of options."""

    digest: str
    options: dict[str, Any]
    version: int
    """Of rows without a time of their own: the same at each attempt."""
    totals: ImportTotals = field(default_factory=ImportTotals)
    rejected_bytes: int = 0


def progress_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.import")


def rejected_file(file: Path, form: Format) -> Path:
    return file.with_name(f"{file.name}.rejected.{'csv' if form == 'csv' else 'ndjson'}")


class ProgressFile:
    """The record beside the file. It is there only while an import is unfinished."""

    def __init__(self, file: Path) -> None:
        self.path = progress_file(file)

    def read(self, wanted: Progress) -> Progress | None:
        """Where an import of the same file with the same options stopped; None: there is none to go on with."""
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=Progress)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return found if (found.digest, found.options) == (wanted.digest, wanted.options) else None

    def write(self, progress: Progress) -> None:
        write_private(self.path, msgspec.json.encode(progress).decode())

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class RejectedRows:
    """Rows that were not imported, each with its line and the reason: they can be mended and imported again."""

    def __init__(self, file: Path, form: Format) -> None:
        self._form = form
        self.path = rejected_file(file, form)
        self._stream: BinaryIO | None = None
        self._columns: tuple[str, ...] | None = None

    def open(self, at: int) -> None:
        """Go on after what is known to be complete."""
        if not at:
            self.path.unlink(missing_ok=True)
            return
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        os.truncate(descriptor, at)
        self._stream = os.fdopen(descriptor, "r+b")
        self._stream.seek(at)
        self._columns = ()

    def add(self, row: RawRow, reason: str) -> None:
        if self._stream is None:
            self._stream = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "w+b")
        if self._form == "csv":
            self._add_csv(self._stream, row, reason)
            return
        values = dict(zip(row.columns, row.values, strict=True)) if row.columns else {"rejectedText": row.values[0]}
        record = {REJECTED_LINE: row.line, REJECTED_REASON: reason, **values}
        self._stream.write(msgspec.json.encode(record, enc_hook=str) + b"\n")

    def _add_csv(self, stream: BinaryIO, row: RawRow, reason: str) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self._columns is None:
            self._columns = (REJECTED_LINE, REJECTED_REASON, *row.columns)
            writer.writerow(map(harmless, self._columns))
        writer.writerow([row.line, harmless(reason), *map(harmless, row.values)])
        stream.write(text.getvalue().encode(errors="surrogateescape"))

    def flush(self) -> int:
        """How much of the file is complete."""
        if self._stream is None:
            return 0
        self._stream.flush()
        return self._stream.tell()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()


def by_frequency(reasons: dict[str, int]) -> list[tuple[str, int]]:
    return Counter(reasons).most_common()
