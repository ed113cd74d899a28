"""A DynamoDB table that gives less than it is asked for: everybody gets through, in its own time and not for ever."""

import itertools
from typing import Any

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.base.errors import ErrorKind, ThrottledError, classify
from clientmgr.base.settings import load_settings
from clientmgr.contracts.topics import DEVICE_MAPPER_ERRORS, NOT_SENT, DeviceMapperTopics
from clientmgr.devices.legacy.manager import DeviceManager
from clientmgr.devices.legacy.throttling import FIRST_INTERVAL_S, LONGEST_INTERVAL_S, KeptAnswers, Pace
from clientmgr.sending.fetch import DeviceFetcher, Strategy
from streaming.device_mapper.mapper import daemon
from tests.device_mapper.conftest import ON_THE_LOG
from tests.device_mapper.dynamodb import Allowance, DynamoDb, MoodyDynamoDb
from tests.device_mapper.samples import APPLICATION, device, message, recipient
from tests.devices.histories import HASHES
from tests.streaming.rig import Rig

pytestmark = pytest.mark.anyio

TX = DeviceMapperTopics("tx", "dg00")
TENANT = CustomerId(7)
Moody = tuple[MoodyDynamoDb, str]


def sending(message_id: str, contacts: range) -> dict[str, Any]:
    recipients = [recipient(contact) for contact in contacts]
    return message(messageId=message_id, expiresAt=4_000_000_000_000, recipients=recipients)


def told(rig: Rig, message_id: str) -> list[int]:
    """The contacts that became something of the message, with or without a device."""
    logged = [one.event for topic in (TX.outputs["apple"], NOT_SENT) for one in rig.topic(topic)]
    return sorted(one["contactId"] for one in logged if one["messageId"] == message_id)


@ON_THE_LOG
async def test_a_message_with_more_contacts_than_a_table_answers_at_once_gets_through(
    rig: Rig, dynamodb: DynamoDb, moody: Moody
) -> None:
    server, url = moody
    server.mood, server.allowance = "limited", Allowance(5, per_s=60)
    contacts = range(101, 221)
    dynamodb.put(7, 150, APPLICATION, "c150")
    await rig.publish(sending("large", contacts), topic=TX.input)

    done = await rig.burst(daemon(TX), dynamodb_endpoint=url, dynamodb_patience_ms=60_000)

    assert (done.done, done.retried) == (1, 0)
    assert told(rig, "large") == list(contacts)
    assert [one.event["clientId"] for one in rig.topic(TX.outputs["apple"])] == ["c150"]
    at_the_start = 1
    assert server.requests > server.passed_on == len(contacts) + at_the_start


@ON_THE_LOG
async def test_of_messages_looked_up_together_those_go_whose_contacts_were_answered(rig: Rig, moody: Moody) -> None:
    server, url = moody
    server.mood, server.allowance = "limited", Allowance(30)
    first, second = range(301, 321), range(321, 421)
    await rig.publish(sending("first", first), sending("second", second), topic=TX.input)
    settings = {"dynamodb_endpoint": url, "dynamodb_concurrency": 4, "dynamodb_patience_ms": 300}

    await rig.burst(daemon(TX), **settings)
    assert (told(rig, "first"), told(rig, "second")) == (list(first), [])
    assert (rig.topic(DEVICE_MAPPER_ERRORS), rig.dead_letters()) == ([], [])

    server.mood = "well"
    rig.make_due()
    await rig.burst(daemon(TX), **settings)
    assert (told(rig, "first"), told(rig, "second")) == (list(first), list(second))


def impatient(url: str, **settings: Any) -> DeviceManager:
    """One query at a time, so that none is under way when the time is up."""
    return DeviceManager(load_settings(dynamodb_endpoint=url, dynamodb_concurrency=1, **settings))


async def test_who_comes_again_needs_only_what_was_not_answered(dynamodb: DynamoDb, moody: Moody) -> None:
    """However few contacts a table answers in the time that there is, in the end all of them are."""
    server, url = moody
    server.mood = "limited"
    contacts = range(501, 541)
    dynamodb.put(7, 501, APPLICATION, "c501")
    manager = impatient(url, dynamodb_patience_ms=150)
    for _ in range(100):
        server.allowance = Allowance(5)
        answers = await manager.ask(TENANT, APPLICATION, contacts)
        if answers.failure is None:
            break
    manager.close()
    assert server.passed_on == len(contacts), "each was answered once"
    assert (answers.failure, answers.unanswered) == (None, frozenset())
    assert [one.client_id for one in answers.devices[501]] == ["c501"]


async def test_what_was_answered_before_another_failure_is_not_asked_again_either(moody: Moody) -> None:
    server, url = moody
    manager = impatient(url)
    server.mood, server.allowance = "limited", Allowance(5)
    server.when_used_up = "confused"
    failed = await manager.ask(TENANT, APPLICATION, range(601, 611))
    assert "502" in str(failed.failure)
    assert failed.unanswered == set(range(606, 611))

    server.mood = "well"
    assert (await manager.ask(TENANT, APPLICATION, range(601, 611))).failure is None
    manager.close()
    assert server.passed_on == 10


async def test_what_a_table_in_good_health_said_is_asked_anew(moody: Moody) -> None:
    server, url = moody
    manager = impatient(url)
    for _ in range(2):
        await manager.ask(TENANT, APPLICATION, [701])
    manager.close()
    assert server.passed_on == 2


async def test_a_table_that_only_throttles_is_given_up_for_now(moody: Moody) -> None:
    server, url = moody
    manager = impatient(url, dynamodb_patience_ms=1000)
    await manager.ask(TENANT, APPLICATION, [1])  # AWS's client is made by the first query, which takes its time
    server.mood = "throttling"
    before = server.requests
    with pytest.raises(ThrottledError, match="40 of 40") as given_up:
        await manager.find_by_contact_keys(TENANT, APPLICATION, range(1, 41))
    manager.close()
    assert classify(given_up.value) is ErrorKind.TRANSIENT
    assert 1 < server.requests - before < 40, "not at full speed"


@ON_THE_LOG
async def test_the_time_that_a_batch_has_is_that_of_its_transaction(rig: Rig, moody: Moody) -> None:
    """A batch of many messages asks many times: its transaction is not to be held for as many patiences."""
    server, url = moody
    server.mood = "throttling"
    manager = impatient(url, dynamodb_patience_ms=200)
    async with await rig.database.connect_async(Role.READER) as connection:
        await connection.execute("SELECT pg_sleep(0.25)")
        fetched = await DeviceFetcher(manager, HASHES).fetch(
            connection, TENANT, APPLICATION, [1, 2, 3], Strategy.DYNAMODB
        )
    manager.close()
    assert isinstance(fetched.failure, ThrottledError)
    assert fetched.unanswered == {1, 2, 3}
    assert server.requests == 1


# The pace


class Time:
    """Passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def pace(time: Time) -> Pace:
    return Pace(time.clock, time.sleep)


FOREVER = float("inf")


async def test_nobody_waits_until_the_store_throttles(pace: Pace) -> None:
    assert [await pace.turn(FOREVER) for _ in range(3)] == [0.0, 0.0, 0.0]


async def test_a_throttled_query_spreads_those_that_follow(pace: Pace, time: Time) -> None:
    pace.throttled(await pace.turn(FOREVER))
    turns = [await pace.turn(FOREVER) for _ in range(3)]
    assert [later - turn for turn, later in itertools.pairwise(turns)] == [FIRST_INTERVAL_S] * 2


async def test_queries_that_were_under_way_slow_it_down_once(pace: Pace, time: Time) -> None:
    together = [await pace.turn(FOREVER) for _ in range(32)]
    time.now += 0.01
    for turn in together:
        pace.throttled(turn)
    assert pace.interval_s == FIRST_INTERVAL_S


async def test_it_gets_slower_to_an_end_and_back_to_none(pace: Pace) -> None:
    for _ in range(20):
        pace.throttled(await pace.turn(FOREVER))
    assert pace.interval_s == LONGEST_INTERVAL_S
    for _ in range(200):
        pace.answered()
    assert not pace.is_slow


async def test_one_answer_among_many_refusals_does_not_bring_full_speed_back(pace: Pace) -> None:
    for _ in range(20):
        pace.throttled(await pace.turn(FOREVER))
        pace.answered()
    assert pace.is_slow


async def test_nobody_waits_beyond_the_time_there_is(pace: Pace) -> None:
    for _ in range(20):
        pace.throttled(await pace.turn(FOREVER))
    last = await pace.turn(FOREVER)
    assert await pace.turn(last + LONGEST_INTERVAL_S / 2) == last + LONGEST_INTERVAL_S / 2


# What is kept


def test_an_answer_is_forgotten_when_it_is_old_however_often_it_was_used(time: Time) -> None:
    kept = KeptAnswers(seconds=10, most=100, clock=time.clock)
    kept.keep(TENANT, "A", {1: [device()], 2: []})
    time.now = 9.0
    assert kept.find(TENANT, "A", [1, 2, 3]) == {1: [device()], 2: []}
    kept.keep(TENANT, "A", {2: []})
    time.now = 10.0
    assert kept.find(TENANT, "A", [1, 2, 3]) == {2: []}


def test_an_answer_is_of_one_tenant_and_application(time: Time) -> None:
    kept = KeptAnswers(seconds=10, most=100, clock=time.clock)
    kept.keep(TENANT, "A", {1: []})
    assert kept.find(CustomerId(8), "A", [1]) == kept.find(TENANT, "B", [1]) == {}


def test_of_too_many_answers_the_oldest_go(time: Time) -> None:
    kept = KeptAnswers(seconds=10, most=2, clock=time.clock)
    kept.keep(TENANT, "A", {1: [], 2: []})
    kept.keep(TENANT, "A", {1: [], 3: []})
    assert set(kept.find(TENANT, "A", [1, 2, 3])) == {1, 3}
