"""The log against a model of it: random publishing, consuming, trimming and resizing, and what must always be true."""

import asyncio
import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import psycopg
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import PermanentError, TransientError
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import DONE, Batch, ConsumerOptions, Dead, Message, Outcome, Retry
from clientmgr.broker.postgres.publish import stage
from clientmgr.broker.postgres.retention import trim
from clientmgr.broker.postgres.topic_administration import TopicNotDrainedError, resize_topic
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.broker.recording import number_of
from tests.examples import examples

T = TypeVar("T")

# What the handler will say to a message when it first sees it; the second time it is always done.
OUTCOMES: dict[str, Outcome] = {
    "done": DONE,
    "dead": Dead("as the model says"),
    "retry at once": Retry(0.0),
    "retry later": Retry(300.0),
}
FATES = ("done", "done", "done", "done", "dead", "retry at once", "retry later", "retry later", "poison")
TENANTS = "1234"
NUMBER = "(convert_from(payload, 'UTF8')::jsonb->'n')::integer"
TRANSACTIONS = st.tuples(
    st.sampled_from(TENANTS),
    st.lists(st.sampled_from(FATES), min_size=1, max_size=6),
    st.integers(1, 2),  # calls
    st.sampled_from([True, True, True, False]),  # whether it commits
)
_example = itertools.count(1)


@dataclass(frozen=True)
class Published:
    number: int
    tenant: str
    transaction: int
    fate: str


@dataclass
class Group:
    """What the model knows of a group."""

    name: str
    unread: list[Published] = field(default_factory=list)
    waiting: list[Published] = field(default_factory=list)
    handled: list[int] = field(default_factory=list)
    """The number of each delivery that was committed."""
    dead: list[int] = field(default_factory=list)

    def consume_all(self) -> Counter[str]:
        """Do what a consumer is to do with all that is unread. Counts what becomes of it."""
        counts: Counter[str] = Counter()
        poisoned = {published.transaction for published in self.unread if published.fate == "poison"}
        for published in self.unread:
            if published.transaction in poisoned:
                counts["dead"] += 1
                self.dead.append(published.number)
                continue
            self.handled.append(published.number)
            match published.fate:
                case "done":
                    counts["done"] += 1
                case "dead":
                    counts["dead"] += 1
                    self.dead.append(published.number)
                case "retry at once":
                    counts["retried"] += 1
                    counts["done"] += 1
                    self.handled.append(published.number)
                case "retry later":
                    counts["retried"] += 1
                    self.waiting.append(published)
        self.unread.clear()
        return counts


class LogMachine(RuleBasedStateMachine):
    def __init__(self, database: Database, broker_settings: Settings, runner: asyncio.Runner) -> None:
        super().__init__()
        self._runner = runner
        self._broker = PostgresBroker(database, broker_settings)
        self._connection = psycopg.connect(database.conninfo(Role.WRITER), autocommit=True)
        self._publisher = self._run(database.connect_async(Role.WRITER, autocommit=True))
        self._topic = f"topic-{next(_example)}"
        self._groups: list[Group] = []
        self._published: list[Published] = []
        self._appended = 0
        self._transactions = itertools.count(1)

    def teardown(self) -> None:
        self._connection.close()
        self._run(self._publisher.close())
        self._run(self._broker.__aexit__(None, None, None))

    @initialize()
    def make_the_topic(self) -> None:
        self._run(self._broker.ensure_topic(self._topic))
        self._make_group(from_start=True)

    @rule(transactions=st.lists(TRANSACTIONS, min_size=2, max_size=6))
    def publish(self, transactions: list[tuple[str, list[str], int, bool]]) -> None:
        for tenant, fates, calls, commits in transactions:
            self._publish_transaction(tenant, fates, calls, commits)

    def _publish_transaction(self, tenant: str, fates: list[str], calls: int, commits: bool) -> None:
        first, transaction = len(self._published), next(self._transactions)
        published = [Published(first + i, tenant, transaction, fate) for i, fate in enumerate(fates)]
        self._run(self._publish(published, calls, commits))
        if commits:
            self._published += published
            self._appended += len(published)
            for group in self._groups:
                group.unread += published

    async def _publish(self, published: Sequence[Published], calls: int, commits: bool) -> None:
        size = -(-len(published) // calls)
        async with self._publisher.transaction(force_rollback=not commits):
            for start in range(0, len(published), size):
                part = [Message(b'{"n": %d}' % p.number, tenant=p.tenant) for p in published[start : start + size]]
                await stage(self._publisher, self._topic, part)

    @precondition(lambda self: any(group.unread for group in self._groups))
    @rule(data=st.data(), batch_size=st.integers(1, 7), concurrency=st.integers(1, 3), hiccups=st.integers(0, 2))
    def consume(self, data: st.DataObject, batch_size: int, concurrency: int, hiccups: int) -> None:
        behind = [group for group in self._groups if group.unread]
        self._consume(data.draw(st.sampled_from(behind)), batch_size, concurrency, hiccups)

    def _consume(self, group: Group, batch_size: int, concurrency: int, hiccups: int) -> None:
        handler = Handler(group.name, self._published, hiccups)
        options = ConsumerOptions(batch_size=batch_size, concurrency=concurrency)
        stats = self._run(self._broker.consume(group.name, handler, options=options, burst=True))
        retries_before = len(group.waiting)
        counts = group.consume_all()
        assert (stats.done, stats.dead, stats.retried) == (counts["done"], counts["dead"], counts["retried"])
        self._appended += counts["retried"] - (len(group.waiting) - retries_before)

    @precondition(lambda self: any(group.waiting for group in self._groups))
    @rule(data=st.data())
    def time_comes_for_what_waits(self, data: st.DataObject) -> None:
        group = data.draw(st.sampled_from([group for group in self._groups if group.waiting]))
        self._connection.execute(
            "UPDATE clientmgr.delayed_message_t SET not_before = now() WHERE group_id = %s", (group.name,)
        )
        # The next consumer puts them at the end of the log; being seen before, they are done with then.
        group.unread += [dataclasses.replace(due, fate="done", transaction=-due.number) for due in group.waiting]
        self._appended += len(group.waiting)
        group.waiting.clear()
        self._consume(group, 3, 1, 0)

    @precondition(lambda self: self._published and len(self._groups) < 3)
    @rule(from_start=st.booleans())
    def make_another_group(self, from_start: bool) -> None:
        self._make_group(from_start=from_start)

    def _make_group(self, *, from_start: bool) -> None:
        group = Group(f"{self._topic}-group-{len(self._groups)}")
        if from_start:
            kept = self._numbers_kept()
            group.unread = [published for published in self._published if published.number in kept]
        self._run(self._broker.ensure_subscription(group.name, self._topic, from_start=from_start))
        self._groups.append(group)

    @precondition(lambda self: self._published)
    @rule()
    def trim(self) -> None:
        self._run(trim(self._publisher, retention_hours=0.0, topic=self._topic, rows_a_transaction=3))
        needed = {published.number for group in self._groups for published in group.unread}
        assert needed <= self._numbers_kept()

    @precondition(lambda self: self._published)
    @rule(total=st.sampled_from([1, 2, 5, 16]))
    def resize(self, total: int) -> None:
        drained = not any(group.unread for group in self._groups)
        try:
            self._run(resize_topic(self._publisher, self._topic, total))
        except TopicNotDrainedError:
            # Another group's retries, which it has yet to pass over, are something to read too.
            assert not drained or len(self._groups) > 1

    @invariant()
    def every_offset_was_used_once(self) -> None:
        # What was published and put back, no more: a gap would make the counter run ahead.
        assert self._execute("SELECT next_offset - 1 FROM clientmgr.log_counter WHERE topic = %s", self._topic) in (
            [],
            [(self._appended,)],
        )

    @invariant()
    def every_group_has_seen_what_it_should_and_nothing_twice(self) -> None:
        for group in self._groups:
            seen = [n for (n,) in self._execute("SELECT number FROM seen WHERE group_id = %s ORDER BY id", group.name)]
            assert sorted(seen) == sorted(group.handled)
            dead = self._execute(f"SELECT {NUMBER} FROM clientmgr.dead_letter_queue WHERE group_id = %s", group.name)
            assert sorted(number for (number,) in dead) == sorted(group.dead)
            first_deliveries = list(dict.fromkeys(seen))
            for tenant in TENANTS:
                of_tenant = [number for number in first_deliveries if self._published[number].tenant == tenant]
                assert of_tenant == sorted(of_tenant)

    def _numbers_kept(self) -> set[int]:
        rows = self._execute(
            f"""
            SELECT {NUMBER} FROM clientmgr.outbox_message_t JOIN clientmgr.log_counter ON id = topic_id
            WHERE topic = %s AND group_id IS NULL
            """,
            self._topic,
        )
        return {number for (number,) in rows}

    def _execute(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql.encode(), parameters).fetchall()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


class Handler:
    """Gives each message its fate, notes each delivery in the batch's transaction, checks that no group is split."""

    def __init__(self, group: str, published: Sequence[Published], hiccups: int) -> None:
        self._group = group
        self._published = published
        self._hiccups = hiccups

    async def __call__(self, batch: Batch) -> list[Outcome]:
        cursor = await batch.connection.execute("SELECT number FROM seen WHERE group_id = %s", (self._group,))
        seen = {number for (number,) in await cursor.fetchall()}
        arrived = [self._published[number_of(received)] for received in batch.messages]
        new = [published for published in arrived if published.number not in seen]
        for transaction in {published.transaction for published in new}:
            whole = [published for published in self._published if published.transaction == transaction]
            assert [published for published in new if published.transaction == transaction] == whole
        await batch.connection.cursor().executemany(
            "INSERT INTO seen (group_id, number) VALUES (%s, %s)",
            [(self._group, published.number) for published in arrived],
        )
        if self._hiccups:
            self._hiccups -= 1
            raise TransientError("a hiccup")
        if any(published.fate == "poison" for published in new):
            raise PermanentError("poison")
        return [DONE if published.number in seen else OUTCOMES[published.fate] for published in arrived]


def test_the_log_does_what_the_model_says(database: Database, settings_for: Callable[[Database], Settings]) -> None:
    with database.connect(Role.OWNER, autocommit=True) as connection:
        connection.execute("""
            CREATE TABLE seen (id bigint GENERATED ALWAYS AS IDENTITY, group_id text, number integer);
            GRANT SELECT, INSERT ON seen TO clientmgr_writer
        """)
    with asyncio.Runner() as runner:
        run_state_machine_as_test(
            cast(type[RuleBasedStateMachine], lambda: LogMachine(database, settings_for(database), runner)),
            settings=settings(
                max_examples=examples(40),
                stateful_step_count=15,
                deadline=None,
                derandomize=True,
                # Shrinking replays the example hundreds of times: on a database that outlasts any time-out.
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
