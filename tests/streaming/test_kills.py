"""Workers are killed over and over and PostgreSQL crashes while events storm in: nothing is lost or mixed up."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings, load_settings
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Message
from clientmgr.contracts import topics
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.conftest import TEST_TUNING
from tests.gateway.process import GatewayProcess
from tests.keys import TEST_KEY
from tests.streaming.processes import WorkerProcess
from tests.streaming.rig import read_topic, until
from tests.streaming.storm import brew, expected_rows, stored_rows

pytestmark = [pytest.mark.anyio, pytest.mark.server]

TENANTS = [CustomerId(customer) for customer in range(1, 51)]
KILLS = 21
MESSAGES_A_PUBLISH = 500

UNREAD = {
    "postgres": """
        SELECT (SELECT count(*) FROM clientmgr.consumer_offsets AS o JOIN clientmgr.outbox_message_t AS m
            ON m.topic_id = o.topic_id AND m.partition_id = o.partition_id AND m.c_offset >= o.next_offset
            WHERE o.group_id = %(subscription)s)
        + (SELECT count(*) FROM clientmgr.delayed_message_t WHERE group_id = %(subscription)s)""",
    "pubsub": """
        SELECT (SELECT count(*) FROM clientmgr.gateway_subscriptions AS s
            JOIN clientmgr.gateway_cursors AS c ON c.subscription_id = s.id
            JOIN clientmgr.outbox_message_t AS m ON m.topic_id = s.topic_id AND m.c_offset >= c.next_offset
            WHERE s.name LIKE '%%/' || %(subscription)s)
        + (SELECT count(*) FROM clientmgr.gateway_deliveries AS d
            JOIN clientmgr.gateway_subscriptions AS s ON s.id = d.subscription_id
            WHERE s.name LIKE '%%/' || %(subscription)s)
        + (SELECT count(*) FROM clientmgr.pubsub_delayed WHERE subscription = %(subscription)s)""",
}
# What a killed reader of Pub/Sub had in hand comes again when its lease has ended: 10 seconds at least.
END_LEASES = """
    UPDATE clientmgr.gateway_deliveries SET lease_until = now(), available_at = now()
    WHERE lease <> 0 AND available_at <> 'infinity'
"""


@pytest.fixture(scope="module")
def crashing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path_factory.mktemp("crashing"), tuning=TEST_TUNING)
    server.start()
    yield server
    server.stop()


@dataclass
class Crew:
    """Two writers and a republisher. Each may die at any moment and is then replaced."""

    ROLES = ("writer", "writer", "republisher")

    settings: Settings
    folder: Path
    members: list[WorkerProcess] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> None:
        self.members.extend(self._new(role) for role in self.ROLES)

    def is_at_work(self, place: int) -> bool:
        self.revive()
        return "daemon started" in self.members[place].log

    def kill_and_replace(self, place: int) -> None:
        assert self.members[place].running, self.members[place].log
        self.members[place].kill()
        self.kills[self.ROLES[place]] += 1
        self.members[place] = self._new(self.ROLES[place])

    def revive(self) -> None:
        """A worker may end while PostgreSQL is away, and whoever supervises it starts it again."""
        for place, role in enumerate(self.ROLES):
            if not self.members[place].running:
                self.members[place] = self._new(role)

    def dismiss(self) -> None:
        for member in self.members:
            member.kill()

    def _new(self, role: str) -> WorkerProcess:
        return WorkerProcess(self.settings, self.folder / f"{role}-{next(self._numbers)}.log", role)


@dataclass
class Scene:
    """The stage of a storm: servers, crew, and what is still to be done."""

    settings: Settings
    database: Database
    crew: Crew
    _looking: Connection[Any] | None = None

    async def publish(self, portion: Sequence[tuple[CustomerId, bytes]]) -> None:
        async with open_broker(self.settings, self.database) as broker:
            for start in range(0, len(portion), MESSAGES_A_PUBLISH):
                some = portion[start : start + MESSAGES_A_PUBLISH]
                await broker.publish(topics.WRITER, [Message(body, str(customer)) for customer, body in some])

    def unread(self, subscription: str) -> int:
        """Events that wait or are in somebody's hands."""
        if self._looking is None or self._looking.closed:
            self._looking = self.database.connect(Role.OWNER, autocommit=True)
        query = UNREAD[self.settings.broker]
        (found,) = self._looking.execute(query, {"subscription": subscription}).fetchall()
        return int(found[0])

    def look_away(self) -> None:
        """Before PostgreSQL goes, and at the end."""
        if self._looking is not None:
            self._looking.close()

    async def wait(self, look: Callable[[], bool], what: str) -> None:
        # The processors are for the workers: look at them now and then.
        await until(look, what, within_s=240, every_s=0.1)

    async def kill_at_work(self, place: int, *, handled: int = 0) -> None:
        """Wait until the worker runs and the writers have handled so many events more, and kill it."""
        before = self.unread(topics.WRITER)
        await self.wait(lambda: self.crew.is_at_work(place), f"worker {place} is at work")
        await self.wait(lambda: self.unread(topics.WRITER) <= before - handled, "the writers get on")
        self.crew.kill_and_replace(place)

    def end_leases(self) -> None:
        """Of the living as well: they have what they are at delivered to somebody else meanwhile."""
        with self.database.connect(Role.OWNER) as connection:
            connection.execute(END_LEASES)

    async def drained(self) -> None:
        def is_drained() -> bool:
            self.crew.revive()
            return self.unread(topics.WRITER) == self.unread(topics.REPUBLISHER) == 0

        await self.wait(is_drained, "every event is settled")


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


def dead_letters(database: Database) -> int:
    with database.connect(Role.OWNER) as connection:
        (found,) = connection.execute("SELECT count(*) FROM clientmgr.dead_letter_queue").fetchall()
    return int(found[0])
