"""What a database may do to the workers: refuse to write, run full, let nobody in. They wait, lose nothing, go on."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import structlog
from psycopg.conninfo import conninfo_to_dict

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.contracts import topics
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from streaming import republisher, writer
from streaming.runtime.daemon import consume_on
from tests.broker.conftest import TRANSPORTS
from tests.streaming.conftest import IMPATIENT
from tests.streaming.rig import Rig, event, until

pytestmark = pytest.mark.anyio

Administer = Callable[[str], None]

END_SESSIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = '{database}' AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""


@pytest.fixture
def administer(postgres_server: EmbeddedPostgres, database: Database) -> Administer:
    """Run SQL from outside the test's database, whose name stands for {database}."""
    name = conninfo_to_dict(database.url)["dbname"]

    def run(sql: str) -> None:
        with psycopg.connect(postgres_server.superuser_url(), autocommit=True) as connection:
            connection.execute(sql.format(database=name))

    return run


@contextlib.asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[None]:
    """A writer and a republisher that have to live through whatever happens meanwhile."""
    stop = asyncio.Event()
    tasks = [
        asyncio.create_task(consume_on(rig.broker, daemon, rig.settings, stop))
        for daemon in (writer.DAEMON, republisher.DAEMON)
    ]
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def test_a_read_only_database_is_waited_out(rig: Rig, administer: Administer) -> None:
    await rig.publish(*(event(client=f"c{n}") for n in range(20)))
    await rig.broker.ensure_topic(topics.WRITER_ERRORS)
    await rig.broker.ensure_topic(topics.REPUBLISHER)
    for subscription in (topics.WRITER, topics.REPUBLISHER):
        await rig.broker.ensure_subscription(subscription, subscription)
    administer('ALTER DATABASE "{database}" SET default_transaction_read_only = on')
    administer(END_SESSIONS)
    with structlog.testing.capture_logs() as logs:
        async with running(rig):
            await until(lambda: any("ReadOnly" in str(entry) for entry in logs), "the workers were refused")
            assert rig.devices() == {}
            administer('ALTER DATABASE "{database}" RESET default_transaction_read_only')
            administer(END_SESSIONS)
            await until(lambda: len(rig.devices()) == 20, "everything is written")

    assert rig.errors == []


@pytest.fixture(params=list(TRANSPORTS))
async def guest_rig(
    request: pytest.FixtureRequest,
    anyio_backend: str,
    database: Database,
    settings_for: Callable[[Database], Settings],
    administer: Administer,
) -> AsyncIterator[Rig]:
    """Workers with a login of their own, which can be limited: a superuser's can not."""
    administer("CREATE ROLE guest LOGIN PASSWORD 'guest' IN ROLE clientmgr_writer")
    url = conninfo_to_dict(database.url)
    guest_url = f"postgresql://guest:guest@{url['host']}:{url['port']}/{url['dbname']}"
    settings = settings_for(database).model_copy(update={**IMPATIENT, "database_writer_url": guest_url})
    guests = Database.from_settings(settings)
    async with TRANSPORTS[request.param](guests, settings) as broker:
        rig = Rig(settings, guests, broker)
        rig.activate(7)
        yield rig
    administer("DROP ROLE guest")


async def test_a_limit_of_connections_is_waited_out(guest_rig: Rig, administer: Administer) -> None:
    await guest_rig.publish(event(client="first"))
    with structlog.testing.capture_logs() as logs:
        async with running(guest_rig):
            await until(lambda: bool(guest_rig.devices()), "the workers work")
            with guest_rig.database.connect(Role.OWNER) as locking:
                locking.execute("LOCK TABLE tenant_7.devices IN ACCESS EXCLUSIVE MODE")
                await guest_rig.publish(*(event(client=f"c{n}") for n in range(20)))
                administer("ALTER ROLE guest CONNECTION LIMIT 0")
                administer(END_SESSIONS + " AND usename = 'guest'")
                await until(lambda: any("too many connections" in str(entry) for entry in logs), "nobody is let in")
            administer("ALTER ROLE guest CONNECTION LIMIT -1")
            await until(lambda: len(guest_rig.devices()) == 21, "everything is written")

    assert guest_rig.errors == []


async def test_workers_that_start_while_nobody_is_let_in_wait_and_begin(guest_rig: Rig, administer: Administer) -> None:
    await guest_rig.publish(event(client="first"))
    administer("ALTER ROLE guest CONNECTION LIMIT 0")
    administer(END_SESSIONS + " AND usename = 'guest'")
    with structlog.testing.capture_logs() as logs:
        async with running(guest_rig):
            await until(lambda: any("too many connections" in str(entry) for entry in logs), "nobody is let in")
            administer("ALTER ROLE guest CONNECTION LIMIT -1")
            await until(lambda: len(guest_rig.devices()) == 1, "the workers work")


async def test_a_column_that_is_dropped_and_comes_back_costs_nothing_but_time(rig: Rig) -> None:
    async with running(rig):
        # Often enough that the statements are prepared by then, as they are in a worker that has run for a while.
        for n in range(8):
            await rig.publish(event(client=f"c{n}", timezone="UTC"))
            await until(lambda n=n: len(rig.devices()) == n + 1, "the event is written")  # type: ignore[misc]
        rig.query("ALTER TABLE tenant_7.devices DROP COLUMN timezone")
        await rig.publish(*(event(client=f"d{n}", timezone="UTC") for n in range(20)))
        await until(lambda: len(rig.retries) >= 20, "the events wait with the republisher")
        rig.query("ALTER TABLE tenant_7.devices ADD COLUMN timezone text")
        await until(lambda: len(rig.devices()) == 28, "everything is written")

    assert rig.errors == []
    assert rig.devices()["d7"]["timezone"] == "UTC"


@pytest.fixture
def tiny_disk(postgres_server: EmbeddedPostgres) -> Iterator[Path]:
    """A disk of four megabytes that PostgreSQL may write: it is confined to its own folder."""
    disk = postgres_server.data / "tiny_disk"
    disk.mkdir(exist_ok=True)
    mount = shutil.which("mount") or "mount"
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=4m", "none", disk], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine lets us mount no small disk: {done.stderr.decode().strip()}")
    os.chown(disk, postgres_server.data.stat().st_uid, -1)
    yield disk
    subprocess.run([shutil.which("umount") or "umount", disk], check=True)
    disk.rmdir()


def fill(file: Path) -> None:
    """Write until the disk is full."""
    with file.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(b"x" * 4096):
            pass


async def test_a_full_disk_sends_a_tenants_events_to_the_retries_until_there_is_room(
    rig: Rig, tiny_disk: Path, administer: Administer
) -> None:
    rig.activate(8)
    administer(f"CREATE TABLESPACE tiny LOCATION '{tiny_disk}'")
    administer("GRANT CREATE ON TABLESPACE tiny TO PUBLIC")
    try:
        rig.query("ALTER TABLE tenant_7.devices SET TABLESPACE tiny")
        filler = tiny_disk / "filler"
        fill(filler)
        attributes = {"text": "x" * 500}
        await rig.publish(
            *(
                event(customer=customer, client=f"c{n}", attributes=attributes)
                for n in range(100)
                for customer in (7, 8)
            )
        )
        with structlog.testing.capture_logs() as logs:
            await rig.burst(writer.DAEMON)

        assert [entry["error_type"] for entry in logs if entry["event"] == "not written"] == ["DiskFull"]
        assert len(rig.devices(8)) == 100
        assert {retry.event["customerId"] for retry in rig.retries} == {7}
        assert rig.errors == []

        filler.unlink()
        rig.make_due()
        await rig.burst(republisher.DAEMON)
        assert len(rig.devices(7)) == 100
        assert rig.errors == []
    finally:
        rig.query("ALTER TABLE tenant_7.devices SET TABLESPACE pg_default")
        administer("DROP TABLESPACE tiny")
