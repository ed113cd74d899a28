"""Dead letters: found by filters, replayed for the one group that failed, dropped; each with its row in the audit."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from psycopg import Connection

from clientmgr.audit.log import PLATFORM, AuditLogger, read_log
from clientmgr.audit.verification import verify
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings, load_settings
from clientmgr.broker import dead_letter_actions as actions
from clientmgr.broker.dead_letters import Selection, State, as_counted, counts
from clientmgr.broker.interface import Dead, Message, Outcome, ReceivedMessage
from clientmgr.broker.postgres.topic_administration import drop_group
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.operations.failures import finding
from clientmgr.operations.failures.finding import Failure, Ref
from tests.broker.conftest import pubsub_on_our_gateway
from tests.broker.recording import SUBSCRIPTION, TOPIC, Recorder, drain, message, messages, ready
from tests.keys import TEST_KEY

pytestmark = pytest.mark.anyio

AUDIT = AuditLogger(TEST_KEY.encode())
OTHER = "orders-other-reader"


@pytest.fixture
async def broker(log_broker: PostgresBroker) -> PostgresBroker:
    """Two groups read the topic."""
    await ready(log_broker)
    await log_broker.ensure_subscription(OTHER, TOPIC)
    return log_broker


@pytest.fixture
def connection(database: Database) -> Any:
    with database.connect(Role.WRITER, autocommit=True) as opened:
        yield opened


def dead(_: ReceivedMessage) -> Outcome:
    return Dead("can't be", "BadThing")


async def bury(broker: PostgresBroker, published: Sequence[Message], subscription: str = SUBSCRIPTION) -> None:
    """Publish each in a transaction of its own, and let the group fail at them for good."""
    for one in published:
        await broker.publish(TOPIC, [one])
    await drain(broker, Recorder(dead), subscription)


def replay(connection: Connection[Any], selection: Selection | None = None, **options: Any) -> list[tuple[int, int]]:
    """(replayed, skipped) of each topic and group."""
    results = actions.replay(
        connection, selection or Selection(), AUDIT, settings=load_settings(), actor="tester", **options
    )
    return [(result.replayed, result.skipped) for result in results]


def found(connection: Connection[Any], **filters: Any) -> list[Failure]:
    return finding.find(connection, finding.Filter(**filters), limit=100)


async def test_a_letter_tells_what_failed_where_and_why(broker: PostgresBroker, connection: Connection[Any]) -> None:
    await bury(broker, [message(1, tenant="42", a="b")])
    (letter,) = found(connection)
    assert (letter.topic, letter.subscription, letter.tenant, letter.key) == (TOPIC, SUBSCRIPTION, "42", "key-1")
    assert (letter.error_class, letter.error, letter.attempts) == ("BadThing", "can't be", 1)
    contents = finding.show(connection, Ref.parse(letter.ref))
    assert (contents.data, contents.attributes) == (b'{"n": 1}', {"a": "b"})


async def test_filters_narrow_together(broker: PostgresBroker, connection: Connection[Any]) -> None:
    await bury(broker, [message(1, tenant="1"), message(2, tenant="2")])
    await drain(broker, Recorder(lambda _: Dead("other", "Other")), OTHER)
    refs = {(letter.subscription, letter.tenant): letter.ref for letter in found(connection)}
    assert len(refs) == 4
    assert {letter.ref for letter in found(connection, tenant="1")} == {refs[SUBSCRIPTION, "1"], refs[OTHER, "1"]}
    assert len(found(connection, subscription=OTHER, error_class="Other")) == 2
    assert found(connection, subscription=OTHER, error_class="BadThing") == []
    assert found(connection, topic="outbox") == []
    (one,) = found(connection, refs=[Ref.parse(refs[OTHER, "2"])])
    assert one.ref == refs[OTHER, "2"]


async def test_text_is_looked_for_in_the_message_and_in_the_error(
    broker: PostgresBroker, connection: Connection[Any]
) -> None:
    await bury(broker, [message(1), Message('{"s": "Straße 100%"}'.encode())])
    assert [letter.bytes for letter in found(connection, contains="Straße 100%")] == [21]
    assert len(found(connection, contains="can't be")) == 2
    assert found(connection, contains="nowhere") == []


async def test_times_choose_by_when_it_failed(broker: PostgresBroker, connection: Connection[Any]) -> None:
    await bury(broker, [message(1)])
    (letter,) = found(connection)
    moment = timedelta(milliseconds=1)
    assert len(found(connection, since=letter.failed_at, until=letter.failed_at + moment)) == 1
    assert found(connection, since=letter.failed_at + moment) == []
    assert found(connection, until=letter.failed_at) == []


async def test_letters_are_counted_by_topic_group_and_error(
    broker: PostgresBroker, connection: Connection[Any]
) -> None:
    await bury(broker, messages(range(3)))
    await drain(broker, Recorder(lambda _: Dead("other", "Other")), OTHER)
    assert [(count.subscription, count.error_class, count.letters) for count in counts(connection, Selection())] == [
        (OTHER, "Other", 3),
        (SUBSCRIPTION, "BadThing", 3),
    ]


async def test_a_replayed_message_comes_again_unchanged_to_the_group_that_failed_and_to_no_other(
    broker: PostgresBroker, connection: Connection[Any]
) -> None:
    data = b'{"eventId":"e-1",  "x": 1.10}'
    await bury(broker, [Message(data, "42", "k", {"a": "b"})])
    await drain(broker, subscription=OTHER)
    (letter,) = found(connection)
    contents = finding.show(connection, Ref.parse(letter.ref))

    assert replay(connection) == [(1, 0)]

    recorder, _ = await drain(broker)
    (received,) = recorder.messages
    assert (received.data, received.tenant, received.key, received.attributes) == (data, "42", "k", {"a": "b"})
    assert (received.attempt, received.message_id) == (1, str(contents.offset))
    assert received.published_at == contents.published_at
    others, _ = await drain(broker, subscription=OTHER)
    assert others.messages == []


async def test_a_replay_can_be_repeated_without_effect(broker: PostgresBroker, connection: Connection[Any]) -> None:
    await bury(broker, messages(range(3)))
    ids = [Ref.parse(letter.ref).number for letter in found(connection)]
    assert replay(connection) == [(3, 0)]
    assert replay(connection) == []
    assert replay(connection, Selection(ids=ids, state=State.ANY)) == [(0, 3)]
    recorder, _ = await drain(broker)
    assert len(recorder.messages) == 3
    assert found(connection) == []
    assert len(found(connection, state=finding.State.REPLAYED)) == 3


async def test_again_replays_what_was_replayed_before(broker: PostgresBroker, connection: Connection[Any]) -> None:
    await bury(broker, messages(range(2)))
    replay(connection)
    assert replay(connection, Selection(state=State.ANY), again=True) == [(2, 0)]
    recorder, _ = await drain(broker)
    assert sorted(recorder.numbers) == [0, 0, 1, 1]


async def test_many_are_replayed_in_their_order_in_several_transactions(
    broker: PostgresBroker, connection: Connection[Any]
) -> None:
    await bury(broker, messages(range(25)))
    progress: list[int] = []
    assert replay(connection, letters_a_transaction=10, on_progress=progress.append) == [(25, 0)]
    assert progress == [10, 10, 5]
    recorder, _ = await drain(broker)
    assert recorder.numbers == list(range(25))


async def test_what_one_transaction_published_is_replayed_as_one(
    broker: PostgresBroker, connection: Connection[Any], query: Callable[..., list[tuple[Any, ...]]]
) -> None:
    for start in (0, 5, 10):
        await broker.publish(TOPIC, messages(range(start, start + 5)))
    await drain(broker, Recorder(dead))
    progress: list[int] = []
    replay(connection, letters_a_transaction=7, on_progress=progress.append)
    assert progress == [10, 5]
    groups = query(
        "SELECT count(*), max(c_offset) - max(tx_last_offset), min(tx_last_offset) = max(tx_last_offset)"
        " FROM clientmgr.outbox_message_t WHERE group_id IS NOT NULL GROUP BY transaction_id"
    )
    assert groups == [(5, 0, True)] * 3


async def test_two_who_replay_at_once_replay_each_letter_once(database: Database, broker: PostgresBroker) -> None:
    await bury(broker, messages(range(60)))

    def one_of_two() -> int:
        with database.connect(Role.WRITER, autocommit=True) as own:
            return sum(replayed for replayed, _ in replay(own, letters_a_transaction=5))

    assert sum(await asyncio.gather(*(asyncio.to_thread(one_of_two) for _ in range(2)))) == 60
    recorder, _ = await drain(broker)
    assert sorted(recorder.numbers) == list(range(60))


async def test_a_letter_that_dies_again_is_a_new_letter(broker: PostgresBroker, connection: Connection[Any]) -> None:
    await bury(broker, [message(1)])
    (first,) = found(connection)
    replay(connection)
    await drain(broker, Recorder(dead))
    (second,) = found(connection)
    assert second.ref != first.ref
    replay(connection)
    recorder, _ = await drain(broker)
    assert recorder.numbers == [1]


async def test_what_failed_after_the_count_is_left_alone(broker: PostgresBroker, connection: Connection[Any]) -> None:
    await bury(broker, [message(1)])
    agreed = as_counted(Selection(), counts(connection, Selection()))
    await bury(broker, [message(2)])
    assert actions.drop(connection, agreed, AUDIT, actor="tester") == 1
    assert len(found(connection)) == 1


async def test_a_letter_of_a_group_that_is_gone_is_not_replayed(
    broker: PostgresBroker, database: Database, connection: Connection[Any]
) -> None:
    await bury(broker, [message(1)])
    async with await database.connect_async(Role.WRITER, autocommit=True) as own:
        await drop_group(own, SUBSCRIPTION)
    (result,) = actions.replay(connection, Selection(), AUDIT, settings=load_settings(), actor="tester")
    assert SUBSCRIPTION in result.problem
    assert result.replayed == 0
    assert len(found(connection)) == 1


async def test_dropped_letters_are_gone_and_no_others(broker: PostgresBroker, connection: Connection[Any]) -> None:
    await bury(broker, [message(1, tenant="1"), message(2, tenant="2")])
    assert actions.drop(connection, Selection(tenant="1"), AUDIT, actor="tester") == 1
    assert [letter.tenant for letter in found(connection, state=finding.State.ANY)] == ["2"]


async def test_replays_and_drops_are_in_the_audit_log_of_their_customer_or_of_the_platform(
    broker: PostgresBroker, connection: Connection[Any], database: Database
) -> None:
    await bury(broker, [message(1, tenant="42"), message(2, tenant="42")])
    replay(connection)
    await bury(broker, [message(3, tenant="7"), message(4, tenant="8")])
    actions.drop(connection, Selection(), AUDIT, actor="tester")
    with database.connect(Role.READER) as reader:
        records = [
            (record.customer_id, record.actor, record.action, record.rows_affected, record.details["subscription"])
            for record in read_log(reader, oldest_first=True)
            if record.action != "database.migrate"
        ]
        assert records == [
            (PLATFORM, "tester", "dead-letters.drop", 4, SUBSCRIPTION),
            (42, "tester", "dead-letters.replay", 2, SUBSCRIPTION),
        ]
        reader.rollback()
        assert list(verify(reader, AUDIT, None)) == []


async def test_a_replay_that_fails_leaves_letter_log_and_audit_as_they_were(
    broker: PostgresBroker, connection: Connection[Any], query: Callable[..., list[tuple[Any, ...]]]
) -> None:
    await bury(broker, messages(range(3)))
    before = query("SELECT count(*), max(c_offset) FROM clientmgr.outbox_message_t")
    query("ALTER TABLE clientmgr.outbox_message_t ADD CONSTRAINT refuse_replays CHECK (group_id IS NULL)")
    with pytest.raises(Exception, match="refuse_replays"):
        replay(connection)
    assert len(found(connection)) == 3
    assert query("SELECT count(*), max(c_offset) FROM clientmgr.outbox_message_t") == before
    assert query("SELECT count(*) FROM clientmgr.audit_log WHERE action <> 'database.migrate'") == [(0,)]


async def test_on_pubsub_a_replayed_message_comes_again_to_the_subscription_that_failed_and_to_no_other(
    database: Database, settings_for: Callable[[Database], Settings], connection: Connection[Any]
) -> None:
    settings = settings_for(database).model_copy(update={"broker": "pubsub"})
    async with pubsub_on_our_gateway(database, settings) as broker:
        await ready(broker)
        await broker.ensure_subscription(OTHER, TOPIC)
        await broker.publish(TOPIC, [message(1, tenant="42", a="b")])
        await drain(broker, Recorder(dead))
        await drain(broker, subscription=OTHER)
        for expected in ([(1, 0)], []):
            results = actions.replay(connection, Selection(), AUDIT, settings=settings, actor="tester")
            assert [(result.replayed, result.skipped) for result in results] == expected
        recorder, _ = await drain(broker)
        others, _ = await drain(broker, subscription=OTHER)
    (received,) = recorder.messages
    assert (received.data, received.tenant, received.key) == (b'{"n": 1}', "42", "key-1")
    assert (received.attributes, received.attempt) == ({"a": "b"}, 1)
    assert others.messages == []
