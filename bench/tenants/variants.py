"""Who is compared: our TenantSchemaManager, the same DDL by psql, and django-tenants; each in its own database."""

import abc
import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path

from bench.harness.keys import BENCH_KEY
from bench.harness.measure import Sample, measure
from bench.harness.options import REPOSITORY
from bench.harness.servers import BenchPostgres
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import load_settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.local.embedded.postgres import binaries
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants.schema_manager import Change, TenantSchemaManager

WORKLOAD = Path(__file__).with_name("workload")
CREATE_TABLES, ADD_COLUMN = WORKLOAD / "0001_devices.sql", WORKLOAD / "0002_nickname.sql"
DJANGO_PROJECT = REPOSITORY / "bench" / "peers" / "django_tenants"


class TenantsVariant(abc.ABC):
    """One way to make, change and check `tenants` schemas. Every step returns what it took."""

    def __init__(self, name: str, server: BenchPostgres, folder: Path, tenants: int, connections: int) -> None:
        self.name = name
        self.server = server
        self.folder = folder
        self.tenants = tenants
        self.connections = connections
        self.database = "bench_" + "".join(letter if letter.isalnum() else "_" for letter in name.lower())

    @property
    def url(self) -> str:
        return self.server.url(self.database)

    def prepare(self) -> None:
        self.server.create_database(self.database)

    @abc.abstractmethod
    def activate(self) -> Sample: ...

    @abc.abstractmethod
    def add_column(self) -> Sample: ...

    @abc.abstractmethod
    def no_op(self) -> Sample: ...


class Ours(TenantsVariant):
    """`TenantSchemaManager`, with registry, record of migrations and audit log, as `clientmgr tenants …` calls it."""

    @property
    def first_file_only(self) -> Path:
        return self.folder / "migrations"

    def prepare(self) -> None:
        super().prepare()
        migrate_database(Database(self.url))
        self.first_file_only.mkdir(exist_ok=True)
        shutil.copy(CREATE_TABLES, self.first_file_only)

    def activate(self) -> Sample:
        manager = self.manager(self.first_file_only)
        return measure(lambda: self._expect(Change.CREATED, manager, range(1, self.tenants + 1)), self.server)

    def add_column(self) -> Sample:
        manager = self.manager(WORKLOAD)
        return measure(lambda: self._expect(Change.MIGRATED, manager), self.server)

    def no_op(self) -> Sample:
        manager = self.manager(WORKLOAD)
        return measure(lambda: self._expect(None, manager), self.server)

    def manager(self, migrations_folder: Path) -> TenantSchemaManager:
        settings = load_settings(
            database_url=self.url,
            data_dir=self.folder,
            audit_hash_key=BENCH_KEY,
            tenant_connections=self.connections,
        )
        return TenantSchemaManager(Database(self.url), settings, migrations_folder=migrations_folder)

    def _expect(self, change: Change | None, manager: TenantSchemaManager, activate: range | None = None) -> None:
        results = manager.activate(activate, actor="bench") if activate else manager.migrate(actor="bench")
        wrong = [result for result in results if result.change is not change]
        if wrong or len(results) != (self.tenants if change else 0):
            raise RuntimeError(f"{len(wrong)} of {len(results)} tenants went wrong: {wrong[:1]}")


class Psql(TenantsVariant):
    """The raw limit: our DDL and nothing else, by one psql a connection, `chunk` tenants a transaction."""

    def __init__(
        self, name: str, server: BenchPostgres, folder: Path, tenants: int, connections: int, *, chunk: int
    ) -> None:
        super().__init__(name, server, folder, tenants, connections)
        self._chunk = chunk

    def prepare(self) -> None:
        super().prepare()
        # The control schema is there for its default privileges: their grants are part of what a table costs.
        migrate_database(Database(self.url))

    def activate(self) -> Sample:
        return self._run_scripts(f'CREATE SCHEMA :"schema";\n\\i {CREATE_TABLES}\n')

    def add_column(self) -> Sample:
        return self._run_scripts(f"\\i {ADD_COLUMN}\n")

    def no_op(self) -> Sample:
        register_directly(self.url, self.tenants, digest="head")
        return measure(lambda: self.ask_who_is_behind("head"), self.server)

    def ask_who_is_behind(self, digest: str) -> None:
        query = named_queries("tenants/queries/tenants.sql")["not_at_head"].replace("%(head)s", f"'{digest}'")
        subprocess.run([*self._psql(), "-c", query], check=True, stdout=subprocess.DEVNULL)

    def _run_scripts(self, ddl: str) -> Sample:
        scripts = [self.folder / f"connection_{number}.sql" for number in range(self.connections)]
        for number, script in enumerate(scripts):
            mine = range(1 + number, self.tenants + 1, self.connections)
            transactions = (mine[start : start + self._chunk] for start in range(0, len(mine), self._chunk))
            script.write_text("".join(_transaction(tenants, ddl) for tenants in transactions))
        return measure(lambda: self._run_all(scripts), self.server)

    def _run_all(self, scripts: list[Path]) -> None:
        environment = {**os.environ, "PGOPTIONS": f"-c role={Role.DDL}"}
        running = [subprocess.Popen([*self._psql(), "-f", script], env=environment) for script in scripts]
        exit_codes = [process.wait() for process in running]
        if any(exit_codes):
            raise RuntimeError("psql failed; its message is above")

    def _psql(self) -> list[str | Path]:
        return [binaries() / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.url]


class DjangoTenants(TenantsVariant):
    """django-tenants' `migrate_schemas`. Django's start-up is not counted: our imports are not either."""

    def __init__(
        self,
        name: str,
        server: BenchPostgres,
        folder: Path,
        tenants: int,
        connections: int,
        *,
        python: Path,
        executor: str,
    ) -> None:
        super().__init__(name, server, folder, tenants, connections)
        self._python = python
        self._executor = executor

    def prepare(self) -> None:
        super().prepare()
        self._step("prepare")

    def activate(self) -> Sample:
        return self._measured("activate")

    def add_column(self) -> Sample:
        return self._measured("add-column")

    def no_op(self) -> Sample:
        return self._measured("no-op")

    def _measured(self, step: str) -> Sample:
        output: list[str] = []
        sample = measure(lambda: output.append(self._step(step)), self.server)
        told = json.loads(output[0])
        cpu = sample.client_cpu_s - told["start_up_cpu_s"]
        return dataclasses.replace(sample, wall_s=told["wall_s"], client_cpu_s=cpu)

    def _step(self, step: str) -> str:
        environment = {**os.environ, "PEER_DATABASE_URL": self.url, "PEER_CONNECTIONS": str(self.connections)}
        command: list[str | Path] = [self._python, "run.py", step, self._executor, str(self.tenants)]
        return subprocess.run(
            command, cwd=DJANGO_PROJECT, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout


def register_directly(url: str, tenants: int, *, digest: str) -> None:
    """Rows in the registry as activation leaves them, without schemas: all that a no-op ever looks at."""
    with Database(url).connect(Role.OWNER, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO clientmgr.tenants (customer_id, status, schema_version, schema_digest, activated_at)"
            " SELECT id, 'active', 1, %s, now() FROM generate_series(1, %s::bigint) AS id",
            (digest, tenants),
        )
        connection.execute("ANALYZE clientmgr.tenants")


def _transaction(tenants: range, ddl: str) -> str:
    return "BEGIN;\n" + "".join(f"\\set schema tenant_{tenant}\n{ddl}" for tenant in tenants) + "COMMIT;\n"
