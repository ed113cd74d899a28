"""The generated load: the same for a seed, in the shares asked for, and sound but for what is meant not to be."""

import itertools
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import Any, get_args

import msgspec
import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import InvalidInputError
from clientmgr.broker.interface import check_publishable
from clientmgr.contracts import topics
from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.deletions import decode_deletion
from clientmgr.contracts.device_events import CONTACT_MERGED, EventType, decode_event
from clientmgr.contracts.verdicts import decode_verdict
from clientmgr.local.load.traffic import LATE_MS, OUT_OF_ORDER_MS, SHARES, LoadConfig, LoadItem, generate

START = 1_763_248_000_123
CONFIG = LoadConfig(tenants=(CustomerId(1), CustomerId(2), CustomerId(3)), start_at=START, devices=50)
MIXED = replace(
    CONFIG, malformed=0.05, duplicates=0.06, late=0.07, out_of_order=0.08, verdicts=0.04, contact_deletions=0.03
)
MANY = 5_000


def taken(config: LoadConfig, count: int = MANY) -> list[LoadItem]:
    return list(itertools.islice(generate(config), count))


def is_event(item: LoadItem) -> bool:
    try:
        decode_event(item.message.data)
    except InvalidMessageError:
        return False
    return True


@dataclass(frozen=True)
class Arrival:
    """A sound event of the writer's topic, and how it compares with what came before it."""

    event: dict[str, Any]
    behind_ms: int
    """How long before the newest of its device that came earlier it happened; 0 or less: it is in order."""
    seen_before: bool


def arrivals(items: list[LoadItem]) -> list[Arrival]:
    newest: dict[tuple[int, str], int] = defaultdict(int)
    ids: set[str] = set()
    found = []
    for item in items:
        if item.topic == topics.WRITER and is_event(item):
            event = msgspec.json.decode(item.message.data)
            key = (event["customerId"], event["clientId"])
            found.append(Arrival(event, newest[key] - event["occurredAt"], event["eventId"] in ids))
            newest[key] = max(newest[key], event["occurredAt"])
            ids.add(event["eventId"])
    return found


def test_the_same_seed_and_start_give_the_same_messages() -> None:
    assert taken(MIXED, 3000) == taken(MIXED, 3000)


def test_another_seed_gives_other_devices() -> None:
    keys = [{item.message.key for item in taken(replace(CONFIG, seed=seed), 500)} for seed in (1, 2)]
    assert not keys[0] & keys[1]


def test_another_start_gives_the_same_devices_and_other_event_ids() -> None:
    runs = [taken(replace(CONFIG, start_at=START + shift)) for shift in (0, 86_400_000)]
    assert {item.message.key for item in runs[0]} == {item.message.key for item in runs[1]}
    ids = [{arrival.event["eventId"] for arrival in arrivals(run)} for run in runs]
    assert not ids[0] & ids[1]


def test_without_shares_every_event_is_sound_new_and_in_order() -> None:
    found = arrivals(taken(CONFIG))
    assert len(found) == MANY
    assert all(arrival.behind_ms < 0 and not arrival.seen_before for arrival in found)


def test_all_that_happens_to_devices_occurs() -> None:
    kinds = Counter(arrival.event["eventType"] for arrival in arrivals(taken(CONFIG)))
    assert set(kinds) == set(get_args(EventType)) - {CONTACT_MERGED}


def test_a_life_begins_with_a_registration_also_after_a_deletion() -> None:
    last: dict[tuple[int, str], str] = {}
    for arrival in arrivals(taken(CONFIG)):
        key = (arrival.event["customerId"], arrival.event["clientId"])
        before, now = last.get(key, "client.deleted"), arrival.event["eventType"]
        assert (before == "client.deleted") == (now == "client.registered")
        last[key] = now


def test_some_tokens_change_hands_within_an_application() -> None:
    holders: dict[tuple[str, str], set[str]] = defaultdict(set)
    for arrival in arrivals(taken(CONFIG)):
        token = arrival.event["payload"].get("pushToken")
        if token:
            holders[arrival.event["applicationCode"], token].add(arrival.event["clientId"])
    assert any(len(clients) > 1 for clients in holders.values())


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
def test_malformed_messages_are_json_that_is_refused_in_the_share_asked_for(share: float) -> None:
    items = taken(replace(CONFIG, malformed=share))
    for item in items:
        check_publishable(item.topic, item.message, 10_000)
    refused = sum(not is_event(item) for item in items)
    assert refused / len(items) == pytest.approx(share, abs=0.03)


def test_malformed_messages_are_wrong_in_many_ways() -> None:
    problems = set()
    for item in taken(replace(CONFIG, malformed=1.0), 2000):
        with pytest.raises(InvalidMessageError) as refused:
            decode_event(item.message.data)
        problems.add(str(refused.value))
    assert len(problems) >= 15


def test_shares_are_kept_side_by_side() -> None:
    items = taken(MIXED)
    found = arrivals(items)
    fresh = [arrival for arrival in found if not arrival.seen_before]
    counts = {
        "malformed": sum(item.topic == topics.WRITER for item in items) - len(found),
        "duplicates": len(found) - len(fresh),
        "late": sum(arrival.behind_ms > OUT_OF_ORDER_MS[1] for arrival in fresh),
        "out_of_order": sum(0 < arrival.behind_ms <= OUT_OF_ORDER_MS[1] for arrival in fresh),
        "verdicts": sum(item.topic in (topics.PUSH_TOKEN_STATUS, topics.WEB_PUSH_TOKEN_STATUS) for item in items),
        "contact_deletions": sum(item.topic == topics.CONTACT_DELETION for item in items),
    }
    assert {name: count / MANY for name, count in counts.items()} == {
        name: pytest.approx(getattr(MIXED, name), abs=0.015) for name in SHARES
    }


def test_out_of_order_events_are_behind_their_device_by_seconds_and_late_ones_by_hours() -> None:
    for config, (least, most) in [
        (replace(CONFIG, out_of_order=0.5), OUT_OF_ORDER_MS),
        (replace(CONFIG, late=0.5), LATE_MS),
    ]:
        found = arrivals(taken(config))
        behind = [arrival.behind_ms for arrival in found if arrival.behind_ms > 0]
        assert len(behind) / len(found) == pytest.approx(0.5, abs=0.03)
        assert least <= min(behind) < max(behind) <= most


def test_verdicts_and_deletions_are_such_as_their_workers_read() -> None:
    items = taken(replace(CONFIG, verdicts=0.3, contact_deletions=0.3))
    read: Counter[str] = Counter()
    for topic, message in items:
        if topic == topics.CONTACT_DELETION:
            decode_deletion(message.data)
        elif topic != topics.WRITER:
            decode_verdict(topic, message.data)
        read[topic] += 1
    assert len(read) == 4


def test_traffic_is_spread_evenly_or_by_rank() -> None:
    def per_tenant(skew: float) -> list[float]:
        counts = Counter(item.message.tenant for item in taken(replace(CONFIG, skew=skew)))
        return [counts[str(tenant)] / MANY for tenant in CONFIG.tenants]

    assert per_tenant(0) == [pytest.approx(1 / 3, abs=0.03)] * 3
    assert per_tenant(1) == [pytest.approx(share, abs=0.03) for share in (6 / 11, 3 / 11, 2 / 11)]


def test_time_passes_as_told_and_starts_where_told() -> None:
    found = arrivals(taken(replace(CONFIG, interval_ms=50, devices=100_000), 1000))
    assert [arrival.event["occurredAt"] for arrival in found] == [START + 50 * number for number in range(1000)]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"tenants": ()}, "tenants"),
        ({"devices": 0}, "devices"),
        ({"skew": -1.0}, "skew"),
        ({"late": 1.5}, "late"),
        ({"out_of_order": -0.1}, "out-of-order"),
        ({"late": 0.6, "malformed": 0.6}, "shares"),
    ],
)
def test_a_config_that_can_not_be_is_refused_by_name(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{named}: expected"):
        replace(CONFIG, **wrong)


def test_it_is_quick_enough_to_keep_a_benchmark_busy() -> None:
    begun = time.process_time()
    taken(MIXED)
    # Ten times slower than measured: only a mistake in the generator is to fail here, not a busy machine.
    assert MANY / (time.process_time() - begun) > 5_000
