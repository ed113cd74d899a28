"""Real servers for the tests: one PostgreSQL and one Redis a session, a fresh database for each test that asks."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]  # it ships no types
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from clientmgr.audit.log import AuditLogger
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings, load_settings
from clientmgr.contracts.handing_out import LOGIN_SETTINGS
from clientmgr.local.embedded.postgres import EmbeddedPostgres, PostgresTuning
from clientmgr.local.embedded.postgres_logins import OWNER
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.local.embedded.server import EmbeddedServer
from clientmgr.operations.migrations import migrate_database
from tests.citus.cluster import ON_CLUSTER, CitusCluster, ClusterDatabases, template_name
from tests.databases import Databases
from tests.keys import TEST_KEY
from tests.memory_folder import memory_folder
from tests.statements.watch import SERVER_SETTINGS, STATEMENTS, StatementWatch

# fsync protects from a crash of the machine; the tests only ever crash processes. Nor does anybody guess the passwords
# of their servers: to hash one 4,096 times over is what most of a log-in costs, on both sides.
TEST_TUNING = PostgresTuning(
    shared_buffers="128MB", max_wal_size="256MB", fsync=False, extra=(*SERVER_SETTINGS, ("scram_iterations", "1"))
)
TEMPLATE = "migrated_template"
WATCH = pytest.StashKey[StatementWatch]()
"""On the session's PostgreSQL server, once it runs."""


SPARK_SESSION = "tests/spark/"
OWN_SPARK = frozenset(
    f"tests/spark/test_{name}.py"
    for name in ("adbc", "concurrent_writes", "packing", "scan_turns", "shared_server", "slices", "submit")
)
"""Files of that folder that do without the shared Spark session, so that any worker may have them."""
LONGEST_FIRST = (
    SPARK_SESSION,
    "tests/spark/test_shared_server.py",
    "tests/streaming/test_kills.py",
    "tests/processes/test_up.py",
    "tests/dagster/test_stopping.py",
    "tests/dagster/test_backfills.py",
    "tests/spark/test_submit.py",
    "tests/dagster/test_system.py",
    "tests/broker/faults/test_faults.py",
    "tests/device_mapper/test_kills.py",
    "tests/dashboard/test_api.py",
    "tests/dagster/test_in_a_checkout.py",
    "tests/gateway/test_durability.py",
    "tests/streaming/test_waiting_for_activation.py",
)
"""What takes half a minute or more. Begun last, it would be all that one worker does while others have nothing left."""


SERVER_FIXTURES = frozenset(
    {"postgres_server", "redis_server", "made_postgres", "spark", "bigquery_stand_in", "dynamodb_stand_in", "dynamodb"}
)
"""A test that asks for one of these, however indirectly, needs a server. One that starts servers or long processes of
its own says so with `@pytest.mark.server`. `make check` runs all the others.
"""


def kept_together(nodeid: str) -> str:
    """What one worker has all of: a file, for its fixtures, and all files that share the Spark session."""
    file = nodeid.partition("::")[0]
    return SPARK_SESSION if file.startswith(SPARK_SESSION) and file not in OWN_SPARK else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {scope: place for place, scope in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(kept_together(item.nodeid), len(places)))
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if not SERVER_FIXTURES.isdisjoint(item.fixturenames):
            item.add_marker("server")
        if "spark" in item.fixturenames and kept_together(item.nodeid) in OWN_SPARK:
            raise pytest.UsageError(f"{item.nodeid} uses the shared Spark session: take its file out of OWN_SPARK")


class FilesTogether(LoadScopeScheduling):  # type: ignore[misc]
    """`--dist loadgroup` is for this, but pytest 9.2 has done away with the attribute that it sets."""

    def _split_scope(self, nodeid: str) -> str:
        return kept_together(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesTogether:
    return FilesTogether(config, log)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _isolated_from_the_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's shell or `.env` may decide how a test ends; no server starts that is not marked."""
    if request.node.get_closest_marker("server") is None:
        monkeypatch.setattr(EmbeddedServer, "start", _refuse_to_start)
    for name in list(os.environ):
        # Amazon's: a region is what turns the legacy store on.
        if name.lower() in Settings.model_fields or name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setitem(Settings.model_config, "env_file", None)


@pytest.fixture(autouse=True)
def _statements_keep_to_one_tenant(request: pytest.FixtureRequest) -> Iterator[None]:
    """No statement that the server got meanwhile names two tenants, or finds one by search_path."""
    yield
    _complain_of_statements(request.config)


@pytest.fixture(scope="session")
def postgres_server(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[EmbeddedPostgres | CitusCluster]:
    if ON_CLUSTER:
        yield CitusCluster(tmp_path_factory.mktemp("postgres"))
        return
    with memory_folder(tmp_path_factory.mktemp("postgres")) as folder:
        server = EmbeddedPostgres(folder / "postgres", tuning=TEST_TUNING)
        server.start()
        with psycopg.connect(server.superuser_url(), autocommit=True) as connection:
            # Some tests play an owner who tampers with the log: the worst one that there can be.
            connection.execute(f"GRANT SET ON PARAMETER session_replication_role TO {OWNER}")
        pytestconfig.stash[WATCH] = StatementWatch(server.data / STATEMENTS)
        yield server
        server.stop()
        _complain_of_statements(pytestconfig)
        del pytestconfig.stash[WATCH]


@pytest.fixture
def statement_watch(postgres_server: EmbeddedPostgres, pytestconfig: pytest.Config) -> StatementWatch:
    """For the tests of the watch itself: what they take from it, nobody else complains of."""
    return pytestconfig.stash[WATCH]


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def _databases(postgres_server: EmbeddedPostgres | CitusCluster) -> Iterator[Databases]:
    with _databases_on(postgres_server) as databases:
        yield databases


@pytest.fixture(scope="session")
def _template(postgres_server: EmbeddedPostgres | CitusCluster, _databases: Databases) -> Iterator[str]:
    template = template_name() if ON_CLUSTER else TEMPLATE
    with _databases.alone():
        _databases.create(template)
        migrate_database(Database(postgres_server.url(template)), audit=AuditLogger(TEST_KEY.encode()))
    yield template
    if ON_CLUSTER:
        _databases.drop(template)


@pytest.fixture
def empty_database(_databases: Databases) -> Iterator[Database]:
    """A database with nothing in it."""
    with _databases.throwaway() as database:
        yield database


@pytest.fixture
def database(_databases: Databases, _template: str) -> Iterator[Database]:
    """A database with the control schema and the broker, and no tenant."""
    with _databases.throwaway(_template) as database:
        yield database


@pytest.fixture
def settings_for(tmp_path: Path) -> Callable[[Database], Settings]:
    """Settings that point at a test's database and keep secrets in its own folder."""

    def make(database: Database) -> Settings:
        logins = {LOGIN_SETTINGS[role].lower(): url for role, url in database.role_urls.items()}
        return load_settings(database_url=database.url, data_dir=tmp_path, audit_hash_key=TEST_KEY, **logins)

    return make


def _complain_of_statements(config: pytest.Config) -> None:
    watch = config.stash.get(WATCH, None)
    if watch is not None and (complaints := watch.complaints()):
        # The server writes its log a moment later than it answers: this test's statement, or the last one's.
        pytest.fail("statements that break a rule of tests/statements/rules.py:\n" + "\n".join(complaints[:5]))


def _refuse_to_start(server: EmbeddedServer) -> None:
    raise AssertionError(f"this test starts {server.name}: mark it with @pytest.mark.server")


def _throwaway_database(server: EmbeddedPostgres | CitusCluster, template: str) -> Iterator[Database]:
    """For fixtures that live longer than a test."""
    with _databases_on(server) as databases, databases.throwaway(template) as database:
        yield database


def _databases_on(server: EmbeddedPostgres | CitusCluster) -> Databases:
    return ClusterDatabases(server) if isinstance(server, CitusCluster) else Databases(server)
