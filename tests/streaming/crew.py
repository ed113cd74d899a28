"""Workers that storm through events and may be killed at any moment, and what is still to be done."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Message
from clientmgr.contracts import topics
from tests.streaming.processes import WorkerProcess
from tests.streaming.rig import until

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


def dead_letters(database: Database) -> int:
    with database.connect(Role.OWNER) as connection:
        (found,) = connection.execute("SELECT count(*) FROM clientmgr.dead_letter_queue").fetchall()
    return int(found[0])
