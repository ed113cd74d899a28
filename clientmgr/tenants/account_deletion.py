"""Deletes a customer's account: its schema, its data elsewhere, and what others show of it.

Each step can be repeated, and the tenant stays `deleting` until the last one. Whatever ends a deletion half-way, the
next request continues it. The audit log has the intent first and the result last.
"""

import contextlib
import enum
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import Connection

from clientmgr.audit.log import AuditEntry, AuditLogger, Detail
from clientmgr.base.customer_ids import CustomerId, quoted_schema, schema_name
from clientmgr.base.errors import TransientError
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.stopping import StillWanted, StoppedError, ensure_wanted
from clientmgr.contracts.lifecycle import TenantRequest
from clientmgr.tenants import customer_data
from clientmgr.tenants.cache_invalidation import CacheInvalidator
from clientmgr.tenants.registry import TenantStatus, lock_tenants
from clientmgr.tenants.requested_states import RequestedState, record_requests
from clientmgr.tenants.results import Change, TenantResult, explain

log = get_logger(__name__)

_QUERIES = named_queries("tenants/queries/tenants.sql")

ACTION = "account.delete"


class Step(enum.StrEnum):
    """How far a deletion has come."""

    INTENDED = "the intent is recorded"
    CACHES_INVALIDATED = "nobody takes the customer for active any more"
    DROPPED = "the schema and all rows are gone"
    UNCACHED = "cached data is gone"
    RELEASED = "it is shown nowhere any more"
    COMPLETED = "the result is recorded"


OnStep = Callable[[Step], None]
Release = Callable[[CustomerId], None]
"""Makes systems that `clientmgr` does not know forget the customer. It may be called again."""


class AccountDeletion:
    """One per schema manager, which lends it its connections."""

    def __init__(
        self,
        settings: Settings,
        audit: AuditLogger,
        cache_invalidator: CacheInvalidator,
        connect: Callable[[], Connection[Any]],
    ) -> None:
        self._settings = settings
        self._audit = audit
        self._cache_invalidator = cache_invalidator
        self._connect = connect

    def run(
        self, request: TenantRequest, *, on_step: OnStep, release: Release, still_wanted: StillWanted
    ) -> TenantResult:
        """Delete, or continue a deletion. An absent customer is a result too, and so is a newer request to keep it.

        Stopped, it raises before the next step that destroys something. The request stands, see `note_deletions`.
        """
        customer = request.customer_id
        with self._connect() as connection:
            ensure_wanted(still_wanted, "the deletion had not begun")
            if not self._intend(connection, request):
                return TenantResult(customer, Change.SUPERSEDED)
            on_step(Step.INTENDED)
            # Before the schema goes: from here on nobody may take the customer for active.
            self._cache_invalidator.invalidate()
            on_step(Step.CACHES_INVALIDATED)
            try:
                ensure_wanted(still_wanted, "the intent is recorded, nothing is dropped")
                with connection.transaction():
                    result = self._drop(connection, request)
                if result.change is Change.SUPERSEDED:
                    return result
                on_step(Step.DROPPED)
                ensure_wanted(still_wanted, "the schema and all rows are gone, cached data is not")
                # After the rows: from now on nobody finds anything to fill a cache with.
                customer_data.remove_cached(self._settings, customer)
                on_step(Step.UNCACHED)
                release(customer)
                on_step(Step.RELEASED)
                with connection.transaction():
                    connection.execute(_QUERIES["set_deleted"], {"customer_id": customer})
                    self._record(connection, request, "completed")
                on_step(Step.COMPLETED)
            except StoppedError as stop:
                self._record_end(connection, request, "stopped", str(stop))
                raise
            except (psycopg.Error, TransientError) as error:
                self._record_end(connection, request, "failed", explain(error))
                return TenantResult(customer, Change.FAILED, error=explain(error))
        return result

    def _intend(self, connection: Connection[Any], request: TenantRequest) -> bool:
        """Record the request. A deletion that has begun is finished, even if the customer is to come back by now."""
        customer = request.customer_id
        with connection.transaction():
            stands = record_requests(connection, RequestedState.DELETED, [request])
            begun = [tenant.status for tenant in lock_tenants(connection, [customer])] == [TenantStatus.DELETING]
            if not stands and not begun:
                self._record(connection, request, Change.SUPERSEDED)
                return False
            connection.execute(_QUERIES["set_deleting"], {"customer_id": customer})
            self._record(connection, request, "intended")
        return True

    def _drop(self, connection: Connection[Any], request: TenantRequest) -> TenantResult:
        customer = request.customer_id
        statuses = [tenant.status for tenant in lock_tenants(connection, [customer])]
        if statuses and statuses[0] not in (TenantStatus.DELETING, TenantStatus.DELETED):
            # Another process has finished the deletion, and the customer is back: its new schema stays.
            self._record(connection, request, Change.SUPERSEDED)
            return TenantResult(customer, Change.SUPERSEDED)
        rows_deleted = drop_schema(connection, customer)
        removed = customer_data.remove_rows(connection, customer)
        connection.execute(_QUERIES["forget_migrations"], {"customer_id": customer})
        change = Change.ALREADY_ABSENT if rows_deleted is None else Change.DROPPED
        self._record(connection, request, change, rows_affected=rows_deleted, **removed)
        return TenantResult(customer, change, rows_deleted=rows_deleted)

    def _record(
        self,
        connection: Connection[Any],
        request: TenantRequest,
        outcome: str,
        *,
        rows_affected: int | None = None,
        **details: Detail,
    ) -> None:
        if request.event_id:
            details = {"event_id": request.event_id, **details}
        if request.claimed_by:
            details = {"claimed_by": request.claimed_by, **details}
        entry = AuditEntry(
            request.customer_id, request.actor, ACTION, outcome, rows_affected=rows_affected, details=details
        )
        self._audit.append(connection, [entry])

    def _record_end(self, connection: Connection[Any], request: TenantRequest, outcome: str, why: str) -> None:
        """The tenant stays `deleting`. The next request continues where this one ended."""
        own = self._connect if connection.broken else lambda: contextlib.nullcontext(connection)
        try:
            with own() as working, working.transaction():
                self._record(working, request, outcome, error=why)
        except psycopg.Error as unrecorded:
            # The caller needs the failure itself, not this one.
            reason = explain(unrecorded)
            log.error("an unfinished deletion is not in the audit log", customer_id=request.customer_id, error=reason)


def drop_schema(connection: Connection[Any], customer_id: CustomerId) -> int | None:
    """Drop the schema in the caller's transaction. Returns how many devices went with it; None: it was not there."""
    if not schema_exists(connection, customer_id):
        return None
    devices = 0
    if _is_true(connection, "devices_exist", devices=f"{schema_name(customer_id)}.devices"):
        counted = connection.execute(f"SELECT count(*) FROM {quoted_schema(customer_id)}.devices").fetchone()
        devices = counted[0] if counted else 0
    connection.execute(f"DROP SCHEMA {quoted_schema(customer_id)} CASCADE")
    return devices


def schema_exists(connection: Connection[Any], customer_id: CustomerId) -> bool:
    return _is_true(connection, "schema_exists", schema=schema_name(customer_id))


def _is_true(connection: Connection[Any], query: str, **parameters: str) -> bool:
    row = connection.execute(_QUERIES[query], parameters).fetchone()
    return bool(row and row[0])
