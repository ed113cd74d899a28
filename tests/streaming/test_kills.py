"""Workers are killed over and over and PostgreSQL crashes while events storm in: nothing is lost or mixed up."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import load_settings
from clientmgr.broker.factory import open_broker
from clientmgr.contracts import topics
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.conftest import TEST_TUNING
from tests.gateway.process import GatewayProcess
from tests.keys import TEST_KEY
from tests.streaming.crew import Crew, Scene, dead_letters
from tests.streaming.rig import read_topic
from tests.streaming.storm import brew, expected_rows, stored_rows

pytestmark = [pytest.mark.anyio, pytest.mark.server]

TENANTS = [CustomerId(customer) for customer in range(1, 51)]
KILLS = 21


@pytest.fixture(scope="module")
def crashing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path_factory.mktemp("crashing"), tuning=TEST_TUNING)
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def scene(
    request: pytest.FixtureRequest, anyio_backend: str, crashing_server: EmbeddedPostgres, tmp_path: Path
) -> AsyncIterator[Scene]:
    """A database with fifty tenants and a crew, on the transport that the test asks for."""
    name = f"storm_{request.param}"
    with psycopg.connect(crashing_server.url("postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    database = Database(crashing_server.url(name))
    migrate_database(database)
    settings = load_settings(
        database_url=database.url,
        data_dir=tmp_path,
        audit_hash_key=TEST_KEY,
        broker=request.param,
        broker_wait_period_ms=100,
        # What a killed worker had in hand comes again at once on the log, and after ten seconds on Pub/Sub.
        writer_batch_size=500 if request.param == "postgres" else 50,
        pubsub_ack_deadline_s=10,
    )
    TenantSchemaManager(database, settings).activate(TENANTS, actor="test")
    with ExitStack() as stack:
        if request.param == "pubsub":
            gateway = GatewayProcess(database, tmp_path / "gateway.log", poll_ms=100)
            gateway.start()
            stack.callback(gateway.stop)
            settings = settings.model_copy(update={"pubsub_emulator_host": gateway.address})
        async with open_broker(settings, database) as broker:
            for topic in (topics.WRITER, topics.REPUBLISHER, topics.WRITER_ERRORS):
                await broker.ensure_topic(topic)
                await broker.ensure_subscription(topic, topic)
        crew = Crew(settings, tmp_path)
        stack.callback(crew.dismiss)
        crew.start()
        scene = Scene(settings, database, crew)
        stack.callback(scene.look_away)
        yield scene


@pytest.mark.parametrize(("scene", "size"), [("postgres", 50_000), ("pubsub", 10_000)], indirect=["scene"])
async def test_kills_and_a_crash_lose_nothing_and_leave_the_rows_of_the_sorted_history(
    scene: Scene, size: int, crashing_server: EmbeddedPostgres
) -> None:
    storm = brew(TENANTS, size, seed=size)
    portion = size // KILLS + 1
    for step in range(KILLS):
        place = step % len(Crew.ROLES)
        scene.end_leases()  # those of the last kill end by themselves
        arriving = storm.arriving[step * portion : (step + 1) * portion]
        if Crew.ROLES[place] == "republisher":
            # What a locked tenant's events wait for is the republisher, and while it has them it dies.
            with scene.database.connect(Role.OWNER) as locking:
                for customer in TENANTS[step : step + 4]:
                    locking.execute(f"LOCK TABLE {quoted_schema(customer)}.devices IN ACCESS EXCLUSIVE MODE")
                await scene.publish(arriving)
                await scene.wait(lambda: scene.unread(topics.REPUBLISHER) > 20, "locked tenants' events wait")
            await scene.kill_at_work(place)
        else:
            await scene.publish(arriving)
            await scene.kill_at_work(place, handled=portion // 3)
        if step == KILLS // 2:
            scene.look_away()
            crashing_server.crash()
            crashing_server.restart_on_same_port()
    await scene.drained()

    assert sum(scene.crew.kills.values()) == KILLS >= 20
    assert scene.crew.kills["republisher"] >= 6
    errors = [error.data for error in read_topic(scene.database, topics.WRITER_ERRORS)]
    # The log settles a message and what comes of it together; Pub/Sub delivers at least once, and so do we then.
    at_least_once = scene.settings.broker == "pubsub"
    assert Counter(set(errors) if at_least_once else errors) == Counter(storm.malformed)
    assert dead_letters(scene.database) == 0
    for customer in TENANTS:
        assert stored_rows(scene.database, customer) == expected_rows(storm.histories[customer]), customer
