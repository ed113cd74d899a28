"""Imports a customer's folder of files, one after the other, wherever it is.

Beside each file stands what the command leaves beside it: `FILE.import` while it is unfinished, and `FILE.rejected.csv`
or `.ndjson`. `FILE.imported` says what became of it: who comes again passes over a file that has not changed since.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.base.stopping import StillWanted, always_wanted, ensure_wanted
from clientmgr.devices.imports.files import ENDINGS
from clientmgr.devices.imports.folders import FileInFolder, Folder, FolderUnavailableError
from clientmgr.devices.imports.importer import DeviceImport, ImportOptions, ImportReport
from clientmgr.devices.imports.progress import ImportTotals, progress_file, rejected_file

DONE: Final = ".imported"
SAVED_EVERY_S: Final = 20.0
"""A killed import does again what it did since. That changes nothing."""


class Imported(Struct, frozen=True, rename="camel"):
    """What became of a file, as it was then."""

    version: str
    totals: ImportTotals


@dataclass(frozen=True)
class FolderImport:
    """One import of one customer's folder."""

    settings: Settings
    database: Database
    customer_id: CustomerId
    folder: Folder
    actor: str
    application_code: str | None = None
    mapped: Mapping[str, str] = field(default_factory=dict)
    delimiter: str = ","
    dry_run: bool = False
    restart: bool = False
    """Import every file anew, from its beginning."""
    still_wanted: StillWanted = always_wanted
    on_progress: Callable[[str, int], None] = lambda *_: None
    """Told the file's name, and how many rows of it are done."""

    def run(self) -> Iterator[tuple[str, ImportTotals | None]]:
        """Each file by name, with what became of its rows; None: it was imported before, as it is."""
        present = {one.name: one for one in self.folder.files()}
        for file in present.values():
            if not file.name.lower().endswith(tuple(ENDINGS)) or ".rejected." in file.name:
                continue
            ensure_wanted(self.still_wanted, f"{file.name} of customer {self.customer_id} was not begun")
            with tempfile.TemporaryDirectory(prefix="import-") as place:  # its owner's alone
                if f"{file.name}{DONE}" in present and self._is_done(file, Path(place)):
                    yield file.name, None
                else:
                    yield file.name, self._import(file, Path(place) / file.name)

    def _is_done(self, file: FileInFolder, place: Path) -> bool:
        note = place / f"{file.name}{DONE}"
        if self.restart or self.dry_run or not self.folder.fetch(note.name, note):
            return False
        try:
            return msgspec.json.decode(note.read_bytes(), type=Imported).version == file.version
        except msgspec.DecodeError:
            return False

    def _import(self, file: FileInFolder, local: Path) -> ImportTotals:
        if not self.folder.fetch(file.name, local):
            raise FolderUnavailableError(
                f"{file.name} of customer {self.customer_id} was removed as it was about to be read"
            )
        os.utime(local, (file.modified_s, file.modified_s))  # the time of rows that have none
        options = ImportOptions(
            local,
            customer_id=self.customer_id,
            application_code=self.application_code,
            mapped=self.mapped,
            delimiter=self.delimiter,
            dry_run=self.dry_run,
            restart=self.restart,
        )
        beside = [rejected_file(local, DeviceImport.form_of(options)), progress_file(local)]
        if not self.restart and not self.dry_run:
            for one in beside:
                self.folder.fetch(one.name, one)
        work = DeviceImport(self.settings, options)
        report = asyncio.run(work.run(self.database, _Saving(self, local, beside)))
        if not self.dry_run:
            self._finish(file, work, report, beside[0])
        return report.totals

    def _finish(self, file: FileInFolder, work: DeviceImport, report: ImportReport, rejected: Path) -> None:
        if report.rejected is None:
            self.folder.remove(rejected.name)
        else:
            self.folder.put(rejected, rejected.name)
        audit_import(self.database, self.settings, work, report, actor=self.actor, file=file.name)
        note = rejected.with_name(f"{file.name}{DONE}")
        note.write_bytes(msgspec.json.encode(Imported(file.version, report.totals)))
        self.folder.put(note, note.name)
        self.folder.remove(f"{file.name}.import")


class _Saving:
    """After a portion: tells how far the file is, puts that beside it now and then, and stops where nobody wants it."""

    def __init__(self, work: FolderImport, local: Path, beside: list[Path]) -> None:
        self._work, self._local, self._beside = work, local, beside
        self._next_at = time.monotonic() + SAVED_EVERY_S
        self._rows = 0

    def __call__(self, rows: int) -> None:
        self._rows += rows
        self._work.on_progress(self._local.name, self._rows)
        is_wanted = self._work.still_wanted()
        if not self._work.dry_run and (not is_wanted or time.monotonic() >= self._next_at):
            # First the rows, then the record of how many of them are complete.
            for one in self._beside:
                if one.exists():
                    self._work.folder.put(one, one.name)
            self._next_at = time.monotonic() + SAVED_EVERY_S
        ensure_wanted(lambda: is_wanted, f"{self._rows} rows of {self._local.name} are imported")


def audit_import(
    database: Database, settings: Settings, work: DeviceImport, report: ImportReport, *, actor: str, file: str = ""
) -> None:
    """The file's name only where it is one of a folder that operators chose: another may name a person."""
    details: dict[str, str | int] = {
        "command": "import",
        "rejected": report.totals.rejected,
        "digest": work.progress.digest,
    }
    entry = AuditEntry(
        work.customer_id or 0,
        actor,
        "devices.import",
        "done",
        rows_affected=report.totals.imported,
        details=details | ({"file": file} if file else {}),
    )
    with database.connect(Role.WRITER) as connection:
        AuditLogger.from_settings(settings).append(connection, [entry])
