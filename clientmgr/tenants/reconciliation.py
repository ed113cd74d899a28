"""Finds where the registry, the schemas and the requests disagree, repairs it, and reports.

A repair only does what somebody requested. Data that nobody asked to remove is reported, and a person decides.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import ClientManagerError
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.stopping import StillWanted, StoppedError, always_wanted, ensure_wanted
from clientmgr.contracts.lifecycle import TenantRequest
from clientmgr.tenants import customer_data
from clientmgr.tenants.account_deletion import Release, drop_schema
from clientmgr.tenants.registry import find_tenant
from clientmgr.tenants.requested_states import RequestedState, lock_requested_state
from clientmgr.tenants.results import Change, TenantResult, explain
from clientmgr.tenants.schema_manager import TenantSchemaManager

_QUERIES = named_queries("tenants/queries/drift.sql")

MOST_AT_ONCE = 1000


class DriftKind(enum.StrEnum):
    """What can disagree, in the order of repair."""

    UNFINISHED_DELETION = "unfinished deletion"
    UNFINISHED_ACTIVATION = "unfinished activation"
    DELETION_NOT_BEGUN = "deletion not begun"
    ACTIVATION_NOT_BEGUN = "activation not begun"
    SCHEMA_MISSING = "schema missing"
    SCHEMA_OF_DELETED = "schema of a deleted customer"
    SCHEMA_OF_NOBODY = "schema of nobody"
    ROWS_OF_DELETED = "rows of a deleted customer"


@dataclass(frozen=True, slots=True)
class Drift:
    """Something that is not as it should be."""

    kind: str
    customer_id: CustomerId
    asked_at: datetime | None
    detail: str


@dataclass(frozen=True, slots=True)
class Repair:
    """The outcome of a repair."""

    drift: Drift
    repaired: bool
    outcome: str


def find_drift(connection: Connection[Any], *, grace_s: float, most: int = MOST_AT_ONCE) -> list[Drift]:
    """What has disagreed for longer than `grace_s`: before that, somebody may be working on it."""
    settled = datetime.now(UTC) - timedelta(seconds=grace_s)
    with connection.cursor(row_factory=class_row(Drift)) as cursor:
        found = cursor.execute(_QUERIES["drift"], {"settled": settled, "most": most}).fetchall()
    known = {drift.customer_id for drift in found}
    for customer in sorted(customer_data.deleted_customers_with_rows(connection) - known):
        found.append(Drift(DriftKind.ROWS_OF_DELETED, customer, None, "written after the deletion"))
    return found[:most]


class Reconciler:
    """Repairs what `find_drift` finds, one tenant at a time. A repair that fails does not stop the others."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        actor: str,
        manager: TenantSchemaManager | None = None,
        release: Release = lambda _: None,
        still_wanted: StillWanted = always_wanted,
    ) -> None:
        self._database = database
        self._actor = actor
        self._grace_s = settings.tenant_reconcile_grace_s
        self._manager = manager or TenantSchemaManager(database, settings)
        self._audit = AuditLogger.from_settings(settings)
        self._release = release
        self._still_wanted = still_wanted

    def find(self) -> list[Drift]:
        with self._database.connect(Role.DDL) as connection:
            return find_drift(connection, grace_s=self._grace_s)

    def repair(self, drifts: Sequence[Drift]) -> list[Repair]:
        """Stopped, it raises before the next repair."""
        repairs: list[Repair] = []
        for drift in drifts:
            ensure_wanted(self._still_wanted, f"{len(repairs)} of {len(drifts)} repairs are done")
            repairs.append(self._attempt(drift))
        return repairs

    def _attempt(self, drift: Drift) -> Repair:
        ways: dict[str, Callable[[Drift], Repair]] = {
            DriftKind.UNFINISHED_ACTIVATION: self._finish_activation,
            DriftKind.ACTIVATION_NOT_BEGUN: self._activate,
            DriftKind.SCHEMA_MISSING: self._restore_schema,
            DriftKind.SCHEMA_OF_NOBODY: self._drop_schema_of_nobody,
            DriftKind.ROWS_OF_DELETED: self._remove_rows,
        }
        try:
            return ways.get(drift.kind, self._delete)(drift)
        except StoppedError:
            raise
        except (psycopg.Error, ClientManagerError) as error:
            return Repair(drift, False, explain(error))

    def _finish_activation(self, drift: Drift) -> Repair:
        return _repair(drift, self._manager.migrate([drift.customer_id], actor=self._actor))

    def _activate(self, drift: Drift) -> Repair:
        if not self._manager.register([self._request(drift)]):
            return Repair(drift, True, Change.SUPERSEDED)
        return self._finish_activation(drift)

    def _restore_schema(self, drift: Drift) -> Repair:
        return _repair(drift, [self._manager.restore_missing_schema(drift.customer_id, actor=self._actor)])

    def _delete(self, drift: Drift) -> Repair:
        request, still_wanted = self._request(drift), self._still_wanted
        done = self._manager.delete_as_asked(request, release=self._release, still_wanted=still_wanted)
        return _repair(drift, [done])

    def _request(self, drift: Drift) -> TenantRequest:
        """As old as the request that it repeats: whatever was requested since then counts more."""
        return TenantRequest(drift.customer_id, self._actor, drift.asked_at or datetime.fromtimestamp(0, UTC))

    def _drop_schema_of_nobody(self, drift: Drift) -> Repair:
        """Drop it if it is empty. One that holds devices stays: nobody asked to remove them."""
        with self._database.connect(Role.DDL) as connection:
            connection.execute(_QUERIES["lock_registry"])
            if find_tenant(connection, drift.customer_id) is not None:
                return Repair(drift, True, "registered meanwhile")
            devices = drop_schema(connection, drift.customer_id)
            if devices:
                connection.rollback()
                left = (
                    f"left alone: it holds {devices} devices; `clientmgr tenants delete {drift.customer_id}` drops it"
                )
                return Repair(drift, False, left)
            self._record(connection, drift, rows_affected=0)
        return Repair(drift, True, "dropped, it was empty")

    def _remove_rows(self, drift: Drift) -> Repair:
        with self._database.connect(Role.DDL) as connection:
            # A customer that was activated since the rows were found may have written rows that are to stay.
            if lock_requested_state(connection, drift.customer_id) is not RequestedState.DELETED:
                return Repair(drift, True, Change.SUPERSEDED)
            removed = customer_data.remove_rows(connection, drift.customer_id)
            self._record(connection, drift, rows_affected=sum(removed.values()))
        return Repair(drift, True, ", ".join(f"{count} rows of {table}" for table, count in removed.items()))

    def _record(self, connection: Connection[Any], drift: Drift, *, rows_affected: int) -> None:
        entry = AuditEntry(
            drift.customer_id, self._actor, "tenant.reconcile", str(drift.kind), rows_affected=rows_affected
        )
        self._audit.append(connection, [entry])


def _repair(drift: Drift, results: Sequence[TenantResult]) -> Repair:
    """`migrate` has no result for a tenant that another process has finished meanwhile."""
    if not results:
        return Repair(drift, True, Change.UNCHANGED)
    failed = results[0].change is Change.FAILED
    return Repair(drift, not failed, (results[0].error or "") if failed else results[0].change)
