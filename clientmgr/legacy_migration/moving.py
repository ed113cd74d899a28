"""Moves customers from stage to stage: the stage, its flippers and the audit row are one transaction."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct, field
from psycopg import Connection
from psycopg.rows import tuple_row

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import PermanentError
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.legacy_migration.stages import (
    FLIPPERS,
    Comparison,
    FallbackAnswers,
    Limits,
    Stage,
    earlier_stages,
    next_stage,
    stage_after_check,
    stage_by_flippers,
    why_not_further,
)
from clientmgr.tenants.flippers import Flipper, Flippers, read_flippers, set_flipper
from clientmgr.tenants.registry import TenantStatus, find_tenant

QUERIES: Final = named_queries("legacy_migration/queries/migrations.sql")


class StageError(PermanentError):
    """The customer can't go to that stage now. Says why."""


class MigrationStatus(Struct, frozen=True, rename="camel", kw_only=True):
    """How far one customer is."""

    customer_id: CustomerId
    stage: Stage
    started: bool
    """Whether somebody has started its migration; if not, the stage is what its flippers say."""
    changed_at: datetime | None
    changed_by: str | None
    scanned_at: datetime | None
    items: int | None
    imported: int | None
    passed_over: int | None
    rejected: int | None
    rejections: Mapping[str, int] = field(default_factory=dict)
    imported_at: datetime | None
    checked_at: datetime | None
    different: int | None
    different_fields: Mapping[str, int] = field(default_factory=dict)
    contacts_24h: int
    from_fallback_24h: int
    flippers_agree: bool
    """Whether the flippers are those of the stage. If not, somebody changed them by hand."""
    next_stage: Stage | None
    why_not_further: str | None

    @property
    def comparison(self) -> Comparison:
        return Comparison(self.imported_at, self.checked_at, self.different or 0, self.rejected or 0)


def limits_of(settings: Settings) -> Limits:
    return Limits(timedelta(hours=settings.migration_check_hours), settings.migration_max_fallback_share)


def status_of(
    connection: Connection[Any], settings: Settings, customers: Sequence[CustomerId] | None = None
) -> Iterator[MigrationStatus]:
    """All active customers, or these of them, by id."""
    flippers = read_flippers(connection)
    limits, now = limits_of(settings), datetime.now(UTC)
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(QUERIES["status"], {"customers": None if customers is None else list(customers)})
        for row in cursor:
            yield _status(row, flippers, limits, now)


def start(
    connection: Connection[Any], audit: AuditLogger, settings: Settings, customer_id: CustomerId, *, actor: str
) -> MigrationStatus:
    """Begin, or begin anew what is under way: Dagster imports and compares. Where the mapper reads stays."""
    found = _locked(connection, settings, customer_id)
    if FLIPPERS[found.stage] != FLIPPERS[Stage.IMPORTING]:
        raise StageError(f"customer {customer_id} is at “{found.stage}” already: `back` it first to import it anew")
    _move(connection, audit, found, Stage.IMPORTING, actor=actor)
    return _again(connection, settings, customer_id)


def advance(
    connection: Connection[Any], audit: AuditLogger, settings: Settings, customer_id: CustomerId, *, actor: str
) -> MigrationStatus:
    """Go on to the next stage, if the last comparison allows it."""
    found = _locked(connection, settings, customer_id)
    if found.why_not_further is not None or found.next_stage is None:
        raise StageError(f"customer {customer_id} stays at “{found.stage}”: {found.why_not_further}")
    _move(connection, audit, found, found.next_stage, actor=actor)
    return _again(connection, settings, customer_id)


def back(
    connection: Connection[Any],
    audit: AuditLogger,
    settings: Settings,
    customer_id: CustomerId,
    *,
    actor: str,
    to: Stage | None = None,
) -> MigrationStatus:
    """Go back, to the stage before this one or to any earlier. The mapper follows within FLIPPER_REFRESH_MS."""
    found = _locked(connection, settings, customer_id)
    earlier = earlier_stages(found.stage)
    if not earlier:
        raise StageError(f"customer {customer_id} is at the first stage, “{found.stage}”")
    if to is not None and to not in earlier:
        raise StageError(f"customer {customer_id} is at “{found.stage}”: “{to}” is not before that")
    _move(connection, audit, found, earlier[0] if to is None else to, actor=actor)
    return _again(connection, settings, customer_id)


def settle_check(
    connection: Connection[Any], audit: AuditLogger, settings: Settings, customer_id: CustomerId, *, actor: str
) -> MigrationStatus:
    """Take the customer to where its comparison takes it by itself: to “in sync”, or back from there."""
    found = _locked(connection, settings, customer_id)
    stage = stage_after_check(found.stage, found.comparison)
    if not found.started or stage is found.stage:
        return found
    _move(connection, audit, found, stage, actor=actor)
    return _again(connection, settings, customer_id)


def _locked(connection: Connection[Any], settings: Settings, customer_id: CustomerId) -> MigrationStatus:
    connection.execute(QUERIES["lock"], {"customer_id": customer_id})
    tenant = find_tenant(connection, customer_id)
    if tenant is None or tenant.status != TenantStatus.ACTIVE:
        state = "was never activated" if tenant is None else f"is {tenant.status}"
        raise StageError(f"customer {customer_id} {state}: only an active one can be migrated")
    return _again(connection, settings, customer_id)


def _again(connection: Connection[Any], settings: Settings, customer_id: CustomerId) -> MigrationStatus:
    return next(status_of(connection, settings, [customer_id]))


def _move(connection: Connection[Any], audit: AuditLogger, found: MigrationStatus, stage: Stage, *, actor: str) -> None:
    customer_id = found.customer_id
    connection.execute(QUERIES["set_stage"], {"customer_id": customer_id, "stage": stage, "actor": actor})
    details = {"from": str(found.stage), "to": str(stage)}
    audit.append(connection, [AuditEntry(customer_id, actor, "migration.stage", str(stage), details=details)])
    for flipper, enabled in FLIPPERS[stage].items():
        set_flipper(connection, audit, flipper, customer_id, enabled=enabled, actor=actor)


def _status(row: tuple[Any, ...], flippers: Flippers, limits: Limits, now: datetime) -> MigrationStatus:
    (
        customer_id,
        stage,
        changed_at,
        changed_by,
        scanned_at,
        items,
        imported,
        passed_over,
        rejected,
        rejections,
        imported_at,
        checked_at,
        different,
        different_fields,
        contacts,
        from_fallback,
    ) = row
    own = {flipper: flippers.is_on(flipper, customer_id) for flipper in Flipper}
    at = stage_by_flippers(own) if stage is None else Stage(stage)
    comparison = Comparison(imported_at, checked_at, different or 0, rejected or 0)
    return MigrationStatus(
        customer_id=customer_id,
        stage=at,
        started=stage is not None,
        changed_at=changed_at,
        changed_by=changed_by,
        scanned_at=scanned_at,
        items=items,
        imported=imported,
        passed_over=passed_over,
        rejected=rejected,
        rejections=rejections or {},
        imported_at=imported_at,
        checked_at=checked_at,
        different=different,
        different_fields=different_fields or {},
        contacts_24h=contacts,
        from_fallback_24h=from_fallback,
        flippers_agree=own == FLIPPERS[at],
        next_stage=next_stage(at),
        why_not_further=why_not_further(at, comparison, FallbackAnswers(contacts, from_fallback), limits, now),
    )
