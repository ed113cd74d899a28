"""Creates, migrates and drops tenant schemas: many at once, a few per transaction. A failure costs one tenant only."""

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.citus import spreads_tenants
from clientmgr.base.customer_ids import CustomerId, in_schema, parse_customer_id, schema_name
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import ClientManagerError, MigrationError, TransientError
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.logs import get_logger
from clientmgr.base.migrations import pending
from clientmgr.base.portions import portions
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import Migration, named_queries, read_migrations, sql_root
from clientmgr.base.stopping import StillWanted, always_wanted
from clientmgr.broker.waiting_messages import make_due
from clientmgr.contracts.lifecycle import TenantRequest
from clientmgr.tenants.account_deletion import AccountDeletion, OnStep, Release, schema_exists
from clientmgr.tenants.cache_invalidation import CacheInvalidator, RedisCacheInvalidator
from clientmgr.tenants.emptiest_node import place_new
from clientmgr.tenants.registry import Tenant, TenantStatus, lock_tenants
from clientmgr.tenants.requested_states import RequestedState, record_requests
from clientmgr.tenants.results import Change, OnResult, TenantResult, explain
from clientmgr.tenants.spread_schemas import apply_spread, begin_spreading

__all__ = ["Change", "TenantResult", "TenantSchemaManager"]

log = get_logger(__name__)

_QUERIES = named_queries("tenants/queries/tenants.sql")

# Tenants a transaction. A small change costs less than its commit and its rows in the registry and the audit log, so
# these are shared (`python -m bench tenants` measures it); more than this gains little and holds locks longer.
CHUNK = 16
# Below PostgreSQL's deadlock_timeout: a chunk holds the locks of several tenants, so it is the one to give way. Its
# tenants are then done one by one, each with the lock timeout of the settings.
CHUNK_LOCK_TIMEOUT_MS = 100
# A change that takes long must not keep the tables of many tenants locked until the last one has it. New schemas do
# not count: nobody waits for them.
CHUNK_PATIENCE_S = 1.0


class TenantSchemaManager:
    """The one place that changes tenant schemas. Safe to call from several processes for the same tenants."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        migrations_folder: Path | None = None,
        cache_invalidator: CacheInvalidator | None = None,
    ) -> None:
        self._database = database
        self._cache_invalidator = cache_invalidator or RedisCacheInvalidator(settings)
        self._citus = settings.citus
        self._spread: bool | None = None
        self._connections = settings.tenant_connections
        self._lock_timeout_ms = settings.tenant_lock_timeout_ms
        self._chunk_lock_timeout_ms = min(CHUNK_LOCK_TIMEOUT_MS, self._lock_timeout_ms or CHUNK_LOCK_TIMEOUT_MS)
        self._audit = AuditLogger.from_settings(settings)
        self._hashes = KeyedHashes.from_settings(settings)
        self._migrations = read_migrations(migrations_folder or sql_root() / "tenant")
        self._digests = _cumulative_digests(self._migrations)
        self._deletion = AccountDeletion(settings, self._audit, self._cache_invalidator, self._connect)

    @property
    def head_version(self) -> int:
        return self._migrations[-1].version

    @property
    def head_digest(self) -> str:
        return self._digests[-1]

    def activate(
        self, customer_ids: Iterable[object], *, actor: str, on_result: OnResult | None = None
    ) -> list[TenantResult]:
        """Register customers and create their schemas. Already active ones are left as they are (or migrated)."""
        requests = [TenantRequest(parse_customer_id(customer_id), actor) for customer_id in customer_ids]
        wanted = sorted(self.register(requests))
        results = self._for_each(wanted, lambda c, chunk: self._bring_to_head(c, chunk, actor), on_result)
        created = {result.customer_id for result in results if result.change is Change.CREATED}
        if created and self._spread:
            try:
                with self._connect() as connection:
                    place_new(connection, self._audit, created, actor=actor)
            except (psycopg.Error, ClientManagerError) as error:
                log.warning("new tenants stay where they are, and not on the emptiest node", error=explain(error))
        return results

    def register(self, requests: Sequence[TenantRequest]) -> set[CustomerId]:
        """Record that these customers are to be active, without creating anything. Returns those for whom that counts.

        A customer with a newer request to be deleted is not among them. One whose deletion is under way is, and stays
        `deleting` until that has ended.
        """
        with self._connect() as connection, connection.transaction():
            self._ensure_files_unedited(connection)
            wanted = record_requests(connection, RequestedState.ACTIVE, requests)
            connection.execute(_QUERIES["register"], {"customer_ids": sorted(wanted)})
        if wanted:
            # Before there is a schema: once an activation has succeeded, no cache may call its customers unknown.
            self._cache_invalidator.invalidate()
        return wanted

    def note_deletions(self, requests: Sequence[TenantRequest]) -> None:
        """Record that these customers are to be deleted, without deleting anything.

        If the process that is to do it dies, the reconciler knows of the request and does it.
        """
        with self._connect() as connection, connection.transaction():
            record_requests(connection, RequestedState.DELETED, requests)

    def migrate(
        self,
        customer_ids: Iterable[object] | None = None,
        *,
        actor: str,
        on_start: Callable[[int], None] | None = None,
        on_result: OnResult | None = None,
    ) -> list[TenantResult]:
        """Apply what is pending, for the given tenants or for all. Nothing pending costs one query in all."""
        chosen = None if customer_ids is None else {parse_customer_id(customer_id) for customer_id in customer_ids}
        with self._connect() as connection:
            rows = connection.execute(_QUERIES["not_at_head"], {"head": self.head_digest}).fetchall()
            behind = sorted(CustomerId(row[0]) for row in rows if chosen is None or row[0] in chosen)
            if behind:
                self._ensure_files_unedited(connection)
        if on_start is not None:
            on_start(len(behind))
        return self._for_each(behind, lambda c, chunk: self._bring_to_head(c, chunk, actor), on_result)

    def restore_missing(self, customers: Sequence[CustomerId], *, actor: str) -> list[TenantResult]:
        """Create the schemas of those that are registered as active and have none; costs one query where all do.

        A tenant that fails is a result like any other.
        """
        with self._connect() as connection:
            missing = [
                CustomerId(row[0])
                for row in connection.execute(_QUERIES["active_without_schema"], {"customers": list(customers)})
            ]
        results = []
        for customer_id in missing:
            try:
                results.append(self.restore_missing_schema(customer_id, actor=actor))
            except (psycopg.Error, ClientManagerError) as error:
                results.append(TenantResult(customer_id, Change.FAILED, error=explain(error)))
        return results

    def count_behind(self) -> int:
        """How many registered tenants are not at the newest version."""
        with self._connect() as connection:
            return len(connection.execute(_QUERIES["not_at_head"], {"head": self.head_digest}).fetchall())

    def restore_missing_schema(self, customer_id: CustomerId, *, actor: str) -> TenantResult:
        """Create the missing schema of an active tenant, empty."""
        with self._connect() as connection:
            with connection.transaction():
                tenants = lock_tenants(connection, [customer_id])
                _ensure_registered([customer_id], tenants)
                if schema_exists(connection, customer_id):
                    return TenantResult(customer_id, Change.UNCHANGED, tenants[0].schema_version)
                connection.execute(_QUERIES["forget_migrations"], {"customer_id": customer_id})
                connection.execute(_QUERIES["set_activating"], {"customer_id": customer_id})
            # Killed here, it is an unfinished activation like any other.
            return self._bring_to_head(connection, [customer_id], actor)[0]

    def delete(
        self,
        customer_id: object,
        *,
        actor: str,
        on_step: OnStep = lambda _: None,
        release: Release = lambda _: None,
    ) -> TenantResult:
        """Delete a customer's account, see `account_deletion`. A person asks, and that counts from now on."""
        return self.delete_as_asked(
            TenantRequest(parse_customer_id(customer_id), actor), on_step=on_step, release=release
        )

    def delete_as_asked(
        self,
        request: TenantRequest,
        *,
        on_step: OnStep = lambda _: None,
        release: Release = lambda _: None,
        still_wanted: StillWanted = always_wanted,
    ) -> TenantResult:
        """`delete` for a request made at a certain moment. A newer request to be active wins."""
        return self._deletion.run(request, on_step=on_step, release=release, still_wanted=still_wanted)

    def _bring_to_head(
        self, connection: Connection[Any], customer_ids: Sequence[CustomerId], actor: str
    ) -> list[TenantResult]:
        """Create or migrate the schemas of a few tenants in one transaction: all of them or, with an error, none."""
        with connection.transaction():
            if len(customer_ids) > 1:
                connection.execute(f"SET LOCAL lock_timeout = {self._lock_timeout_for(len(customer_ids))}")
            tenants = lock_tenants(connection, customer_ids)
            _ensure_registered(customer_ids, tenants)
            behind = [tenant for tenant in tenants if not self._is_at_head(tenant)]
            if behind:
                for tenant in behind:
                    self._ensure_known_version(tenant)
                self._apply_pending(connection, behind)
                self._record_at_head(connection, behind)
                self._audit.append(connection, [self._head_reached(tenant, actor) for tenant in behind])
        return [
            TenantResult(
                tenant.customer_id, _change(tenant) if tenant in behind else Change.UNCHANGED, self.head_version
            )
            for tenant in tenants
        ]

    def _apply_pending(self, connection: Connection[Any], tenants: Sequence[Tenant]) -> None:
        started = time.monotonic()
        others_may_wait = len(tenants) > 1 and any(tenant.schema_version for tenant in tenants)
        spread = self._spreads_tenants(connection)
        if spread:
            begin_spreading(connection, self._session_settings(len(tenants)))
        for tenant in tenants:
            # One round trip per tenant, however many files there are.
            if spread:
                apply_spread(connection, tenant.customer_id, self._pending_files(tenant))
            else:
                pending_ddl = in_schema("\n".join(self._pending_files(tenant)), tenant.customer_id)
                connection.execute(pending_ddl.encode())
            if others_may_wait and time.monotonic() - started > CHUNK_PATIENCE_S:
                raise TransientError("too slow to be done for several tenants in one transaction")

    def _head_reached(self, tenant: Tenant, actor: str) -> AuditEntry:
        change = _change(tenant)
        action = "tenant.activate" if change is Change.CREATED else "tenant.migrate"
        return AuditEntry(
            tenant.customer_id, actor, action, change.value, details={"schema_version": self.head_version}
        )

    def _for_each(
        self,
        customer_ids: Sequence[CustomerId],
        work: Callable[[Connection[Any], Sequence[CustomerId]], list[TenantResult]],
        on_result: OnResult | None,
    ) -> list[TenantResult]:
        """Run `work` for every tenant over a few connections. A tenant that fails is a result like any other."""
        results: list[TenantResult] = []
        workers = min(self._connections, len(customer_ids))
        if workers == 0:
            return results
        with (
            # All at once: a pool that grows on demand opens its connections one after the other.
            self._database.pool(Role.DDL, size=workers, min_size=workers, configure=self._configure) as pool,
            ThreadPoolExecutor(workers) as executor,
        ):

            def run(chunk: Sequence[CustomerId]) -> list[TenantResult]:
                try:
                    with pool.connection() as connection:
                        return work(connection, chunk)
                except (psycopg.Error, ClientManagerError) as error:
                    if len(chunk) == 1:
                        return [TenantResult(chunk[0], Change.FAILED, error=explain(error))]
                # Nothing of the chunk was kept. One by one, the error hits its own tenant and no other.
                return [result for customer_id in chunk for result in run([customer_id])]

            futures = [executor.submit(run, chunk) for chunk in _chunks(customer_ids, workers)]
            try:
                for future in as_completed(futures):
                    for result in future.result():
                        results.append(result)
                        if on_result is not None:
                            on_result(result)
            except BaseException:
                executor.shutdown(wait=True, cancel_futures=True)
                raise
        self._wake(results)
        return sorted(results, key=lambda result: result.customer_id)

    def _wake(self, results: Sequence[TenantResult]) -> None:
        """Have what waited for these activations delivered now. If that fails, it comes a little later by itself."""
        created = [str(result.customer_id) for result in results if result.change is Change.CREATED]
        if not created:
            return
        try:
            with self._database.connect(Role.WRITER, autocommit=True) as connection:
                make_due(connection, created)
        except psycopg.Error as error:
            log.warning("messages that wait for new tenants were not made due", error=explain(error))

    def _connect(self) -> Connection[Any]:
        connection = self._database.connect(Role.DDL, autocommit=True)
        self._configure(connection)
        return connection

    def _configure(self, connection: Connection[Any]) -> None:
        settings = self._session_settings()
        connection.execute("; ".join(f"SET {name} = '{value}'" for name, value in settings.items()).encode())

    def _session_settings(self, tenants: int = 1) -> dict[str, str]:
        return {"lock_timeout": self._lock_timeout_for(tenants), **self._hashes.session_settings()}

    def _lock_timeout_for(self, tenants: int) -> str:
        return str(self._chunk_lock_timeout_ms if tenants > 1 else self._lock_timeout_ms)

    def _spreads_tenants(self, connection: Connection[Any]) -> bool:
        """Asked once, by whoever comes first. Whoever comes at the same time asks as well, and hears the same."""
        if self._spread is None:
            self._spread = spreads_tenants(connection, self._citus)
        return self._spread

    def _is_at_head(self, tenant: Tenant) -> bool:
        return tenant.status == TenantStatus.ACTIVE and tenant.schema_digest == self.head_digest

    def _ensure_files_unedited(self, connection: Connection[Any]) -> None:
        recorded = [(row[0], row[1], row[2]) for row in connection.execute(_QUERIES["applied_files"])]
        if new := pending(recorded, self._migrations, "sql/tenant"):
            connection.execute(_QUERIES["replace_unapplied_files"], _file_columns(new))
            connection.execute(_QUERIES["record_files"], _file_columns(new))

    def _ensure_known_version(self, tenant: Tenant) -> None:
        known = self._digests[tenant.schema_version] if tenant.schema_version < len(self._digests) else None
        if tenant.schema_digest != known:
            raise MigrationError(
                f"{schema_name(tenant.customer_id)} is at version {tenant.schema_version}, unknown to this release"
            )

    def _pending_files(self, tenant: Tenant) -> list[str]:
        first = ['CREATE SCHEMA :"schema";'] if tenant.schema_version == 0 else []
        return [*first, *(file.sql for file in self._migrations[tenant.schema_version :])]

    def _record_at_head(self, connection: Connection[Any], tenants: Sequence[Tenant]) -> None:
        applied = [(tenant, file) for tenant in tenants for file in self._migrations[tenant.schema_version :]]
        parameters = {
            "customer_ids": [tenant.customer_id for tenant, _ in applied],
            "versions": [file.version for _, file in applied],
            "checksums": [file.checksum for _, file in applied],
        }
        connection.execute(_QUERIES["record_migrations"], parameters)
        head = {
            "customer_ids": [tenant.customer_id for tenant in tenants],
            "version": self.head_version,
            "digest": self.head_digest,
        }
        connection.execute(_QUERIES["set_at_head"], head)


def _chunks(customer_ids: Sequence[CustomerId], workers: int) -> list[Sequence[CustomerId]]:
    """Neighbours together, at most CHUNK, and small enough that a few tenants keep every worker busy."""
    size = max(1, min(CHUNK, len(customer_ids) // workers))
    return list(portions(customer_ids, size))


def _ensure_registered(customer_ids: Sequence[CustomerId], tenants: Sequence[Tenant]) -> None:
    states = {tenant.customer_id: tenant.status for tenant in tenants}
    for customer_id in customer_ids:
        state = states.get(customer_id, "not registered")
        if state not in (TenantStatus.ACTIVATING, TenantStatus.ACTIVE):
            raise TransientError(f"customer {customer_id} is {state}: its schema is not touched")


def _change(tenant: Tenant) -> Change:
    return Change.CREATED if tenant.status == TenantStatus.ACTIVATING else Change.MIGRATED


def _cumulative_digests(migrations: Sequence[Migration]) -> list[str]:
    """The digest of the first n files, for n = 0, 1, …: equal digests mean the same files with the same contents."""
    digests = [""]
    for migration in migrations:
        digests.append(hashlib.sha256(f"{digests[-1]}{migration.checksum}".encode()).hexdigest())
    return digests


def _file_columns(migrations: Sequence[Migration]) -> dict[str, list[Any]]:
    return {
        "versions": [migration.version for migration in migrations],
        "names": [migration.name for migration in migrations],
        "checksums": [migration.checksum for migration in migrations],
    }
