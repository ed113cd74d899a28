"""Deletes orphans in bounded batches. Each device is checked again, each batch audited; a failing tenant is retried."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import Connection
from psycopg_pool import ConnectionPool

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.arrays import text_array
from clientmgr.base.citus import has_citus
from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import ClientManagerError, is_permanent
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.stopping import StillWanted, always_wanted
from clientmgr.contracts.deletions import ORPHANS_DELETED
from clientmgr.devices.queries import device_queries
from clientmgr.devices.write_lock import locking
from clientmgr.orphans.left_out import why_left_out
from clientmgr.orphans.policy import OrphanPolicy, Outcome
from clientmgr.tenants.registry import ensure_usable, find_tenant

log = get_logger(__name__)

_QUERIES = named_queries("orphans/queries/orphans.sql")


@dataclass(frozen=True, slots=True)
class OrphanResult:
    """The outcome of a run for one tenant."""

    customer_id: CustomerId
    outcome: Outcome
    candidates: int = 0
    deleted: int = 0
    spared: int = 0
    """No longer orphans when they were checked again."""
    devices: int | None = None
    """How many the tenant had in all, where the guard needed to know."""
    attempts: int = 1
    error: str | None = None


class OrphanDeletion:
    """One run over some tenants. Killed and started again, it continues where it was.

    Stopped, it ends before the next batch: `still_wanted` is asked before each.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        policy: OrphanPolicy,
        *,
        run_id: str,
        actor: str,
        still_wanted: StillWanted = always_wanted,
    ) -> None:
        self._database = database
        self._policy = policy
        self._run_id = run_id
        self._actor = actor
        self._audit = AuditLogger.from_settings(settings)
        self._connections = settings.tenant_connections
        self._lock_timeout_ms = settings.tenant_lock_timeout_ms
        self._still_wanted = still_wanted
        self._interrupted = threading.Event()
        self._has_citus: bool | None = None

    def run(
        self, customers: Iterable[CustomerId], *, on_result: Callable[[OrphanResult], None] = lambda _: None
    ) -> list[OrphanResult]:
        """Delete what may be deleted. A tenant that fails is a result like any other, and so is one that was stopped.

        An interrupt, or whatever else ends this early, stops all tenants before their next batch.
        """
        wanted = sorted(set(customers))
        workers = min(self._connections, len(wanted))
        if not workers:
            return []
        with (
            self._database.pool(Role.WRITER, size=workers, configure=self._configure) as pool,
            ThreadPoolExecutor(workers) as executor,
        ):

            def work(customer_id: CustomerId) -> OrphanResult:
                result = self._one_tenant(pool, customer_id)
                self._record(pool, result)
                return result

            results = []
            try:
                for result in executor.map(work, wanted):
                    on_result(result)
                    results.append(result)
            except BaseException:
                # Leaving the executor waits for its threads: without this they would go on to the last tenant.
                self._interrupted.set()
                raise
        return results

    def _one_tenant(self, pool: ConnectionPool[Connection[Any]], customer_id: CustomerId) -> OrphanResult:
        """All attempts at one tenant. Each takes its own connection: the last attempt may have lost its connection.

        What an attempt deleted before it failed stays deleted, and counts.
        """
        total = OrphanResult(customer_id, Outcome.FAILED)
        for attempt in range(1, self._policy.attempts + 1):
            progress = _Progress()
            try:
                with pool.connection() as connection:
                    outcome = self._attempt(connection, customer_id, progress)
            except (psycopg.Error, ClientManagerError) as error:
                total = _added(total, progress, Outcome.FAILED, attempt, _in_a_line(error))
                if is_permanent(error) or attempt == self._policy.attempts:
                    log.warning("orphans not deleted", customer_id=customer_id, attempts=attempt, error=total.error)
                    return total
                self._interrupted.wait(self._policy.retry_pause_s * attempt)
            except Exception as error:
                # Not of this tenant alone, as when nobody can tell whether the run is still wanted: the run ends.
                self._record(pool, _added(total, progress, Outcome.FAILED, attempt, _in_a_line(error)))
                raise
            else:
                return _added(total, progress, outcome, attempt, None)
        return total

    def _attempt(self, connection: Connection[Any], customer_id: CustomerId, progress: "_Progress") -> Outcome:
        policy = self._policy
        if left_out := Outcome.STOPPED if self._is_stopped() else why_left_out(connection, policy, customer_id):
            return left_out
        tenant = find_tenant(connection, customer_id)
        ensure_usable(customer_id, None if tenant is None else tenant.status)
        counted = connection.execute(_QUERIES["count_candidates"], {"customer_id": customer_id}).fetchone()
        if counted is None:
            return Outcome.NOT_SEARCHED
        progress.candidates = counted[0]
        queries = _tenant_queries(customer_id)
        if policy.needs_device_count(progress.candidates):
            progress.devices = connection.execute(queries["count_devices"]).fetchall()[0][0]
            if policy.is_guarded(progress.candidates, progress.devices):
                return Outcome.GUARDED
        orphaned_before = policy.orphaned_before(datetime.now(UTC))
        if policy.dry_run:
            still = {"customer_id": customer_id, "orphaned_before": orphaned_before}
            progress.deleted = connection.execute(queries["count_orphans"], still).fetchall()[0][0]
            progress.spared = progress.candidates - progress.deleted
            return Outcome.DRY_RUN
        outcome = None
        while outcome is None:
            if self._is_stopped():
                outcome = Outcome.STOPPED
            else:
                outcome = self._delete_batch(connection, customer_id, queries, orphaned_before, progress)
        return outcome

    def _is_stopped(self) -> bool:
        return self._interrupted.is_set() or not self._still_wanted()

    def _delete_batch(
        self,
        connection: Connection[Any],
        customer_id: CustomerId,
        queries: Mapping[str, str],
        orphaned_before: datetime,
        progress: "_Progress",
    ) -> Outcome | None:
        """Delete and audit one batch. None: there may be more of them."""
        with connection.transaction():
            self._lock_writes(connection, customer_id)
            # Somebody may have excluded the customer, or turned a flipper, since the last batch.
            if left_out := why_left_out(connection, self._policy, customer_id):
                return left_out
            chosen = {"customer_id": customer_id, "limit": self._policy.batch_size}
            keys = connection.execute(_QUERIES["next_candidates"], chosen).fetchall()
            if not keys:
                return Outcome.DELETED
            columns = {"customer_id": customer_id, **_key_columns(keys)}
            deletion = connection.execute(queries["delete_orphans"], columns | {"orphaned_before": orphaned_before})
            deleted: int = deletion.fetchall()[0][0]
            connection.execute(_QUERIES["forget_candidates"], columns)
            if deleted:
                self._audit.append(connection, [self._audit_entry(customer_id, deleted)])
        progress.deleted += deleted
        progress.spared += len(keys) - deleted
        return None

    def _lock_writes(self, connection: Connection[Any], customer_id: CustomerId) -> None:
        if self._has_citus is None:
            self._has_citus = has_citus(connection)
        if self._has_citus:
            # A session's settings stay on the coordinator, a transaction's count on the node too.
            connection.execute(f"SET LOCAL lock_timeout = {self._lock_timeout_ms:d}")
        for query, parameters in locking([customer_id], has_citus=self._has_citus):
            connection.execute(query, parameters)

    def _audit_entry(self, customer_id: CustomerId, deleted: int) -> AuditEntry:
        details: dict[str, str | int] = {
            "run_id": self._run_id,
            "threshold_hours": int(self._policy.threshold.total_seconds() // 3600),
        }
        return AuditEntry(customer_id, self._actor, ORPHANS_DELETED, "deleted", rows_affected=deleted, details=details)

    def _stop_entry(self, result: OrphanResult) -> AuditEntry:
        """What was deleted is in the entries of its batches. This one says that there are no more, and what is left."""
        left = result.candidates - result.deleted - result.spared
        details: dict[str, str | int] = {"run_id": self._run_id, "deleted_before": result.deleted, "left": left}
        return AuditEntry(result.customer_id, self._actor, ORPHANS_DELETED, "stopped", rows_affected=0, details=details)

    def _record(self, pool: ConnectionPool[Connection[Any]], result: OrphanResult) -> None:
        # On another connection: the one before may be what failed.
        with pool.connection() as connection:
            if result.outcome is Outcome.STOPPED and result.candidates:
                self._audit.append(connection, [self._stop_entry(result)])
            connection.execute(
                _QUERIES["record_result"],
                {
                    "run_id": self._run_id,
                    "customer_id": result.customer_id,
                    "outcome": result.outcome,
                    "devices": result.devices,
                    "candidates": result.candidates,
                    # What a dry run would have deleted was not deleted.
                    "deleted": 0 if result.outcome is Outcome.DRY_RUN else result.deleted,
                    "spared": result.spared,
                    "attempts": result.attempts,
                    "error": result.error,
                },
            )

    def _configure(self, connection: Connection[Any]) -> None:
        connection.execute(f"SET lock_timeout = {self._lock_timeout_ms:d}")


@dataclass(slots=True)
class _Progress:
    """What an attempt has done so far, kept when it fails."""

    candidates: int = 0
    deleted: int = 0
    spared: int = 0
    devices: int | None = None


def results_of_run(connection: Connection[Any], run_id: str) -> list[OrphanResult]:
    """What the run has done so far, by all its attempts together. Of a dry run, what it would have deleted."""
    results = [
        OrphanResult(CustomerId(customer_id), Outcome(outcome), *numbers)
        for customer_id, outcome, *numbers in connection.execute(_QUERIES["results_of_run"], {"run_id": run_id})
    ]
    return [
        replace(one, deleted=one.candidates - one.spared) if one.outcome is Outcome.DRY_RUN else one for one in results
    ]


def record_searches(
    connection: Connection[Any],
    customers: Sequence[CustomerId],
    *,
    searched_at: datetime,
    policy: OrphanPolicy,
    run_id: str,
) -> dict[CustomerId, int]:
    """Note of tenants that are not searched that they have been. Returns how many candidates each has."""
    rows = connection.execute(
        _QUERIES["record_searches"],
        {
            "customers": list(customers),
            "searched_at": searched_at,
            "threshold_days": policy.threshold.total_seconds() / 86_400,
            "run_id": run_id,
        },
    )
    return {CustomerId(customer_id): count for customer_id, count in rows}


def searched_candidates(connection: Connection[Any], customers: Iterable[CustomerId]) -> dict[CustomerId, int]:
    """How many candidates the last search of each of these tenants found. One that was never searched is left out."""
    rows = connection.execute(_QUERIES["searched"], {"customers": list(customers)})
    return {CustomerId(customer_id): count for customer_id, count in rows}


def forget_candidates(connection: Connection[Any], customers: Iterable[CustomerId]) -> None:
    """Drop what earlier searches found of customers who have no orphans any more."""
    connection.execute(_QUERIES["forget_all_candidates"], {"customers": list(customers)})


def young_candidates(connection: Connection[Any]) -> dict[CustomerId, int]:
    """Candidates that were not old enough when they were found, by customer: there must never be any."""
    return {CustomerId(customer_id): count for customer_id, count in connection.execute(_QUERIES["young_candidates"])}


def _tenant_queries(customer_id: CustomerId) -> dict[str, str]:
    return {name: in_schema(sql, customer_id) for name, sql in device_queries("orphans").items()}


def _key_columns(keys: Sequence[Sequence[str]]) -> dict[str, str]:
    return {
        "application_codes": text_array(application_code for application_code, _ in keys),
        "client_ids": text_array(client_id for _, client_id in keys),
    }


def _added(total: OrphanResult, progress: _Progress, outcome: Outcome, attempt: int, error: str | None) -> OrphanResult:
    return replace(
        total,
        outcome=outcome,
        candidates=max(total.candidates, progress.candidates),
        deleted=total.deleted + progress.deleted,
        spared=total.spared + progress.spared,
        devices=progress.devices,
        attempts=attempt,
        error=error,
    )


def _in_a_line(error: Exception) -> str:
    # The first line alone: PostgreSQL's details name rows, and this is kept where devices must not be named.
    return " ".join(str(error).split("\n")[0].split()) or type(error).__name__
