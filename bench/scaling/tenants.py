"""One database that grows from size to size: what the nightly steps take, and what catalogue and server hold."""

import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TypedDict

import psycopg

from bench.batch.session import Driver
from bench.batch.workload import NOW, ORPHANED_BEFORE, put_devices
from bench.harness.keys import BENCH_KEY
from bench.harness.measure import Sample, measure
from bench.harness.servers import BenchPostgres
from bench.scaling.measured import TenantsOfASize
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.base.portions import portions
from clientmgr.base.settings import load_settings
from clientmgr.base.sqlfiles import sql_root
from clientmgr.local.embedded.postgres import binaries
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenant_metrics.tenants import TenantFilter, count_tenants, tenant_page, totals
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.policies import TENANTS_PER_RUN
from clientmgr_dagster.spark.orphans import find_orphans
from clientmgr_dagster.spark.tenant_metrics import collect_metrics

DEVICES = 20
"""Of each tenant: what grows with tenants is to be seen, not what grows with devices."""
FILLED_AT_ONCE = 200
"""Tenants that one connection fills, before its backend has become large."""
PAGE = 50
LOOKS_S, LOOKS_QUICK_S = 10, 1
RUN_ID = "bench"

_CATALOGUE = """
SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_attribute),
    (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c
        WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'r'),
    pg_database_size(current_database()),
    (SELECT count(*) FROM pg_class WHERE relfilenode > 0 AND reltablespace = 0),
    current_setting('max_locks_per_transaction')::bigint
    * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint),
    pg_size_bytes(current_setting('shared_memory_size'))
"""


class Steps(TypedDict):
    """What a size on one server and one on a cluster have in common."""

    activated: int
    activate_s: float
    migrate_s: float
    collect_s: float
    orphans_s: float
    page_s: float


class GrowingDatabase:
    """A control schema and tenants, more at each size."""

    def __init__(
        self, server: BenchPostgres, driver: Driver, folder: Path, *, name: str = "scaling", looks_s: int = LOOKS_S
    ) -> None:
        self._server, self._driver, self._folder, self.name = server, driver, folder, name
        self._looks_s = looks_s
        server.create_database(name)
        self.database = server.database(name)
        migrate_database(self.database)
        self.settings = load_settings(
            database_url=self.database.url, audit_hash_key=BENCH_KEY, log_level="error", sync_validation="off"
        )
        self.customers: list[CustomerId] = []
        self._migrations = folder / "migrations"
        shutil.copytree(sql_root() / "tenant", self._migrations, ignore=shutil.ignore_patterns("queries"))

    def grown_to(self, tenants: int) -> TenantsOfASize:
        """With so many tenants: the four steps, then what there is."""
        steps = self.steps(tenants)
        with psycopg.connect(self._server.superuser_url(self.name), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE pg_catalog.pg_class, pg_catalog.pg_attribute")
            row = connection.execute(_CATALOGUE).fetchone() or ()
        relations, attributes, catalogue, size, files, lock_table, shared = map(int, row)
        dump_s, dump_locks = self.dump()
        return TenantsOfASize(
            tenants=tenants,
            **steps,
            relations=relations,
            attributes=attributes,
            catalogue_bytes=catalogue,
            database_bytes=size,
            files=files,
            autovacuum_look_s=self._autovacuum_look_s(),
            dump_s=dump_s,
            dump_locks=dump_locks,
            lock_table=lock_table,
            crash_start_s=self._crash(),
            shared_memory_bytes=shared,
        )

    def steps(self, tenants: int) -> Steps:
        """Grown to so many: activation, one column, both nightly passes and a look at the dashboard."""
        newcomers = [CustomerId(number) for number in range(len(self.customers) + 1, tenants + 1)]
        self._server.settle()
        activate = self._timed(lambda: self.changed(len(newcomers), self.manager().activate, newcomers))
        self.customers += newcomers
        self._fill(newcomers)
        self._add_column()
        self._server.settle()
        migrate = self._timed(lambda: self.changed(len(self.customers), self.manager().migrate))
        collect, orphans = (self._over_chunks(step) for step in (self._collect, self._find_orphans))
        return {
            "activated": len(newcomers),
            "activate_s": activate.wall_s,
            "migrate_s": migrate.wall_s,
            "collect_s": collect.wall_s,
            "orphans_s": orphans.wall_s,
            "page_s": self._page().wall_s,
        }

    def manager(self) -> TenantSchemaManager:
        return TenantSchemaManager(self.database, self.settings, migrations_folder=self._migrations)

    def _timed(self, work: Callable[[], object]) -> Sample:
        return measure(work, self._server)

    def changed(self, expected: int, change: Callable[..., Sequence[object]], *arguments: object) -> None:
        results = change(*arguments, actor="bench")
        if len(results) != expected or any(getattr(one, "error", None) for one in results):
            raise RuntimeError(f"of {expected} tenants {len(results)} were changed: {results[:1]}")

    def _add_column(self) -> None:
        number = len(list(self._migrations.glob("*.sql"))) + 1
        file = self._migrations / f"{number:04d}_one_column.sql"
        file.write_text(f'ALTER TABLE :"schema".devices ADD COLUMN scaling_{number} text;\n')

    def _fill(self, customers: Sequence[CustomerId]) -> None:
        def fill(portion: Sequence[CustomerId]) -> None:
            with self.database.connect(Role.WRITER) as connection:
                for customer in portion:
                    put_devices(connection, customer, DEVICES)

        with ThreadPoolExecutor(2) as executor:
            list(executor.map(fill, portions(customers, FILLED_AT_ONCE)))

    def _over_chunks(self, step: Callable[[Sequence[CustomerId]], None]) -> Sample:
        """As the schedules launch them, without Dagster: a Spark job for each chunk. The first one warms up."""
        step(self.customers[:1])
        self._server.settle()

        def all_of_them() -> None:
            for chunk in portions(self.customers, TENANTS_PER_RUN):
                step(chunk)

        return self._driver.measure(all_of_them, self._server)

    def _collect(self, customers: Sequence[CustomerId]) -> None:
        collect_metrics(
            self._driver.spark,
            self.database,
            self.settings,
            customers,
            orphaned_before=ORPHANED_BEFORE,
            collected_at=NOW,
            run_id=RUN_ID,
        )

    def _find_orphans(self, customers: Sequence[CustomerId]) -> None:
        find_orphans(
            self._driver.spark,
            self.database,
            self.settings,
            customers,
            orphaned_before=ORPHANED_BEFORE,
            threshold=timedelta(days=30),
            found_at=NOW,
            run_id=RUN_ID,
        )

    def _page(self) -> Sample:
        chosen = TenantFilter(0.01)
        with self.database.connect(Role.READER, autocommit=True) as connection:

            def look() -> None:
                count_tenants(connection, chosen)
                tenant_page(connection, chosen, sort="devices", descending=True, limit=PAGE, offset=0)
                totals(connection, tolerance=0.01)

            look()
            return self._timed(look)

    def _autovacuum_look_s(self) -> float:
        """What the server's looks at idle databases cost, less what it costs with none."""
        with psycopg.connect(self._server.superuser_url("postgres"), autocommit=True) as connection:

            def idle_cpu_s(setting: str) -> float:
                connection.execute(f"ALTER SYSTEM SET {setting}".encode())
                connection.execute("SELECT pg_reload_conf()")
                time.sleep(2)  # what has begun may end
                before = self._server.cpu_seconds() or 0.0
                time.sleep(self._looks_s)
                return (self._server.cpu_seconds() or 0.0) - before

            without = idle_cpu_s("autovacuum = off")
            connection.execute("ALTER SYSTEM RESET autovacuum")
            (databases,) = connection.execute("SELECT count(*) FROM pg_database WHERE datallowconn").fetchall()[0]
            looking = idle_cpu_s("autovacuum_naptime = '1s'")
            connection.execute("ALTER SYSTEM RESET autovacuum_naptime")
            connection.execute("SELECT pg_reload_conf()")
        # One database a naptime is looked at at the least; ours is the one that costs.
        return max(looking - without, 0.0) / max(self._looks_s, int(databases))

    def dump(self) -> tuple[float, int]:
        """Seconds, and how many locks it held at the end."""
        # As the superuser: the owner of the control schema may not read tenants.
        url = self._server.superuser_url(self.name)
        held = [0]
        ended = threading.Event()

        def watch() -> None:
            with psycopg.connect(self._server.superuser_url("postgres"), autocommit=True) as connection:
                while not ended.wait(0.1):
                    (locks,) = connection.execute(
                        "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)"
                        " WHERE a.application_name = 'pg_dump' AND l.locktype = 'relation'"
                    ).fetchall()[0]
                    held[0] = max(held[0], locks)

        watcher = threading.Thread(target=watch)
        watcher.start()
        started = time.perf_counter()
        with tempfile.TemporaryFile(dir=self._folder) as dump:
            subprocess.run([binaries() / "pg_dump", "--format=custom", url], check=True, stdout=dump)
        took_s = time.perf_counter() - started
        ended.set()
        watcher.join()
        return took_s, held[0]

    def _crash(self) -> float:
        self._server.settle()
        # Something to recover.
        with self.database.connect(Role.OWNER, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS clientmgr.scaling_crash AS SELECT 1 AS one")
            connection.execute("DROP TABLE clientmgr.scaling_crash")
        return self._server.crash_and_start()


def sizes_up_to(tenants: int) -> Iterator[int]:
    """Three of them, each ten times the one before."""
    yield from sorted({max(tenants // 100, 1), max(tenants // 10, 1), tenants})
