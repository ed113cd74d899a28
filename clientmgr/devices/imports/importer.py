"""Imports a file: reads and converts a portion of rows while the server writes the one before.

Each tenant's part of a portion is a transaction. After it the record beside the file says how far the import is.
Whoever kills it in between has the portion written twice, and by the rules of versions that changes nothing.
"""

import asyncio
import gc
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import AsyncConnection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError, TenantUnavailableError, UnknownTenantError, is_permanent
from clientmgr.base.settings import Settings
from clientmgr.devices.imports.columns import ColumnMap
from clientmgr.devices.imports.files import Format, RawRow, digest_of, format_of, header_of, read_rows
from clientmgr.devices.imports.progress import ImportTotals, Progress, ProgressFile, RejectedRows
from clientmgr.devices.imports.row_columns import RowColumns, usual_rows_by_customer
from clientmgr.devices.imports.rows import ImportedRow, RowConverter, RowError
from clientmgr.devices.imports.writing import PreparedRows, write_rows
from clientmgr.devices.store import DeviceStore
from clientmgr.tenants.directory import TenantDirectory
from clientmgr.tenants.registry import ensure_usable

ROWS_A_PORTION = 5000
"""A tenant's live events wait while one is written: a fraction of a second."""
COLLECTED_AFTER = 200_000
"""Objects: more than a portion makes."""
TOO_LARGE = "54"
"""SQLSTATE class: a value is too large for something."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What to import, and how."""

    file: Path
    form: Format | None = None
    customer_id: CustomerId | None = None
    application_code: str | None = None
    mapped: Mapping[str, str] = field(default_factory=dict)
    delimiter: str = ","
    occurred_at: int | None = None
    """Of rows that have no time of their own; None: the file's."""
    dry_run: bool = False
    restart: bool = False


@dataclass(frozen=True, slots=True)
class ImportReport:
    totals: ImportTotals
    continued_after: int
    """Rows that an earlier attempt had done."""
    rejected: Path | None
    seconds: float


@dataclass(slots=True)
class _Portion:
    read: int = 0
    rows: dict[CustomerId, RowColumns] = field(default_factory=dict)
    prepared: dict[CustomerId, PreparedRows] = field(default_factory=dict)
    rejected: list[tuple[RawRow, str]] = field(default_factory=list)


class DeviceImport:
    """One import of one file."""

    def __init__(self, settings: Settings, options: ImportOptions) -> None:
        self._options = options
        self._settings = settings
        self._store = DeviceStore.from_settings(settings)
        self._form = self.form_of(options)
        self._columns = ColumnMap(options.mapped)
        header = header_of(options.file, self._form, delimiter=options.delimiter)
        if header is not None:
            self._check_header(header)
        now_ms = time.time_ns() // 1_000_000
        modified_ms = options.file.stat().st_mtime_ns // 1_000_000
        self.progress = Progress(
            digest_of(options.file),
            {
                "customerId": options.customer_id,
                "applicationCode": options.application_code,
                "map": dict(options.mapped),
                "format": self._form,
                "occurredAt": options.occurred_at,
            },
            options.occurred_at or min(now_ms, modified_ms),
        )
        self._progress_file = ProgressFile(options.file)
        self._rejected = RejectedRows(options.file, self._form)
        if not options.dry_run and not options.restart:
            self.progress = self._progress_file.read(self.progress) or self.progress
        self._converter = RowConverter(
            now_ms=now_ms,
            default_version=self.progress.version,
            customer_id=options.customer_id,
            application_code=options.application_code,
        )

    @staticmethod
    def form_of(options: ImportOptions) -> Format:
        return format_of(options.file, options.form)

    @property
    def customer_id(self) -> CustomerId | None:
        """Whose devices these are; None: the rows say it."""
        return self._options.customer_id

    def _check_header(self, header: Sequence[str]) -> None:
        plan = self._columns.plan(header)
        if plan.unknown:
            name = plan.unknown[0]
            raise InvalidInputError(
                f"column {name}", f"a field of a device: --map {name}=FIELD, or --map {name}= to leave it out", name
            )
        for column in self._columns.mapped:
            if column not in header:
                raise InvalidInputError("--map", f"a column of the file ({', '.join(header)})", column)

    async def run(self, database: Database, advance: Callable[[int], None] = lambda _: None) -> ImportReport:
        started = time.monotonic()
        done = self.progress.totals.rows
        advance(done)
        if not self._options.dry_run:
            self._rejected.open(self.progress.rejected_bytes)
        rows = itertools.islice(
            read_rows(self._options.file, self._form, delimiter=self._options.delimiter), done, None
        )
        async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
            tenants = TenantDirectory(self._settings)
            threshold = gc.get_threshold()
            # Rows make no cycles: to look for some among them took a quarter of the time.
            gc.set_threshold(COLLECTED_AFTER, *threshold[1:])
            try:
                await self._all_portions(connection, tenants, rows, advance)
            finally:
                gc.set_threshold(*threshold)
                await tenants.close()
                self._rejected.close()
        if not self._options.dry_run:
            self._progress_file.remove()
        totals = self.progress.totals
        rejected = self._rejected.path if totals.rejected and not self._options.dry_run else None
        return ImportReport(totals, done, rejected, time.monotonic() - started)

    async def _all_portions(
        self,
        connection: AsyncConnection[Any],
        tenants: TenantDirectory,
        rows: Iterator[RawRow],
        advance: Callable[[int], None],
    ) -> None:
        if self._options.customer_id is not None:
            statuses = await tenants.ask_registry(connection, [self._options.customer_id])
            ensure_usable(self._options.customer_id, statuses[self._options.customer_id])
        # One portion is prepared in a thread while another is written: while we wait for the server, Python has time.
        following = asyncio.create_task(asyncio.to_thread(self._prepare, rows))
        try:
            while (portion := await following).read:
                following = asyncio.create_task(asyncio.to_thread(self._prepare, rows))
                await self._write(connection, tenants, portion)
                advance(portion.read)
        finally:
            following.cancel()
            await asyncio.wait([following])

    def _prepare(self, rows: Iterator[RawRow]) -> _Portion:
        portion = _Portion()
        alike: dict[tuple[str, ...], list[RawRow]] = {}
        columns: Sequence[str] | None = None
        for raw in itertools.islice(rows, ROWS_A_PORTION):
            portion.read += 1
            if raw.problem is not None:
                portion.rejected.append((raw, raw.problem))
                continue
            if columns is not raw.columns:  # of most files all rows have the very same
                columns = raw.columns
                group = alike.setdefault(tuple(columns), [])
            group.append(raw)
        for names, group in alike.items():
            self._convert(portion, names, group)
        if not self._options.dry_run:
            for customer_id, of_tenant in portion.rows.items():
                portion.prepared[customer_id] = PreparedRows.of(customer_id, of_tenant, self._store.hashes)
        return portion

    def _convert(self, portion: _Portion, names: tuple[str, ...], group: list[RawRow]) -> None:
        """Rows with the same columns: by column what is usual, one by one what is not."""
        try:
            plan = self._columns.plan(names)
        except InvalidInputError as error:
            portion.rejected += [(raw, str(error)) for raw in group]
            return
        usual, odd = usual_rows_by_customer(plan, group, self._converter)
        by_tenant: defaultdict[CustomerId, list[tuple[ImportedRow, RawRow]]] = defaultdict(list)
        for raw in odd:
            try:
                row = self._converter.convert(plan, raw.values)
            except RowError as error:
                portion.rejected.append((raw, str(error)))
            else:
                by_tenant[row.customer_id].append((row, raw))
        for customer_id, of_tenant in itertools.chain(
            usual.items(), ((customer_id, RowColumns.of(converted)) for customer_id, converted in by_tenant.items())
        ):
            if customer_id in portion.rows:
                portion.rows[customer_id].add(of_tenant)
            else:
                portion.rows[customer_id] = of_tenant

    def _row(self, raw: RawRow) -> ImportedRow:
        return self._converter.convert(self._columns.plan(raw.columns), raw.values)

    async def _write(self, connection: AsyncConnection[Any], tenants: TenantDirectory, portion: _Portion) -> None:
        totals = self.progress.totals
        rejected = list(portion.rejected)
        statuses = await tenants.ask_registry(connection, list(portion.rows)) if portion.rows else {}
        for customer_id in sorted(portion.rows):
            try:
                ensure_usable(customer_id, statuses[customer_id])
            except (UnknownTenantError, TenantUnavailableError) as error:
                rejected += [(raw, f"customerId: {error}") for raw in portion.rows[customer_id].raws]
                continue
            if not self._options.dry_run:
                rejected += await self._write_tenant(connection, portion.prepared[customer_id])
        for raw, reason in sorted(rejected, key=lambda one: one[0].line):
            totals.reject(reason)
            if not self._options.dry_run:
                self._rejected.add(raw, reason)
        totals.rows += portion.read
        totals.imported += portion.read - len(rejected)
        if not self._options.dry_run:
            self.progress.rejected_bytes = self._rejected.flush()
            self._progress_file.write(self.progress)

    async def _write_tenant(self, connection: AsyncConnection[Any], prepared: PreparedRows) -> list[tuple[RawRow, str]]:
        """Write; where a row is to blame for a failure, find it by halves. Returns the rows that can't be written."""
        try:
            async with connection.transaction():
                await write_rows(connection, self._store, prepared, self._row)
        except psycopg.Error as error:
            if connection.closed or not (is_permanent(error) or (error.sqlstate or "").startswith(TOO_LARGE)):
                raise
            rows = prepared.columns
            if len(rows) == 1:
                return [
                    (rows.raws[0], f"row: PostgreSQL refuses it: {error.diag.message_primary or type(error).__name__}")
                ]
            middle = len(rows) // 2
            first, second = set(range(middle)), set(range(middle, len(rows)))
            return [
                rejected
                for left_out in (second, first)
                for rejected in await self._write_tenant(
                    connection,
                    PreparedRows.of(prepared.customer_id, rows.without(left_out), self._store.hashes),
                )
            ]
        return []
