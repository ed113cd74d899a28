"""What counts as a difference between a tenant's devices here and in DynamoDB, and how both stores pick one sample."""

import hashlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clientmgr.local.standins.legacy_devices import dynamodb_value
from clientmgr.tenant_metrics.sync import Sampled, Smallest, compare, fields_of_item, sample_hash


def sampled(key: str, contact: int = 7, **fields: Any) -> Sampled:
    return Sampled(key, sample_hash("11", key), str(contact), json.dumps(fields))


def item(**attributes: Any) -> dict[str, dict[str, Any]]:
    values = {"contactKey": "11#7", "deviceKey": "APP#c1", **attributes}
    return {name: dynamodb_value(value) for name, value in values.items()}


def fields(**attributes: Any) -> dict[str, Any]:
    read = fields_of_item(item(**attributes))
    assert read is not None
    found: dict[str, Any] = json.loads(read)
    return found


def test_equal_devices_do_not_differ() -> None:
    result = compare([sampled("A#1", language="en")], [sampled("A#1", language="en")], 10)
    assert (result.sampled, result.differences) == (1, ())


def test_the_fields_that_differ_are_named_and_counted() -> None:
    here = [sampled("A#1", language="en", platform="ios"), sampled("A#2", language="en", platform="ios")]
    there = [sampled("A#1", language="fr", platform="web"), sampled("A#2", language="fr", platform="ios")]
    result = compare(here, there, 10)
    assert (result.sampled, result.count("different")) == (2, 2)
    assert result.different_fields() == {"language": 2, "platform": 1}


def test_what_only_one_store_has_is_missing_in_the_other() -> None:
    result = compare([sampled("A#here")], [sampled("A#there")], 10)
    assert {(one.device_key, one.difference) for one in result.differences} == {
        ("A#here", "missing in DynamoDB"),
        ("A#there", "missing in PostgreSQL"),
    }


def test_a_device_of_another_contact_differs_in_that_and_is_not_missing_twice() -> None:
    result = compare([sampled("A#1", 7)], [sampled("A#1", 8)], 10)
    assert [(one.difference, one.fields) for one in result.differences] == [("different", ("contact_id",))]


def test_an_item_that_an_earlier_contact_left_behind_is_a_difference_in_the_contact_alone() -> None:
    result = compare([sampled("A#1", 7, language="en")], [sampled("A#1", 3, language="fr"), sampled("A#1", 7)], 10)
    assert [one.fields for one in result.differences] == [("contact_id",)]


def test_an_item_that_can_not_be_read_differs_and_raises_nothing() -> None:
    unreadable = fields_of_item(item(language="half of a pair: \ud800"))
    there = Sampled("A#1", sample_hash("11", "A#1"), "7", unreadable)
    result = compare([sampled("A#1", 7, language="en")], [there], 10)
    assert [(one.difference, one.fields) for one in result.differences] == [("different", ("unreadable item",))]


def test_a_web_push_subscription_without_an_endpoint_is_no_token() -> None:
    assert fields(webPush={})["push_token"] is None
    assert fields(webPush={"endpoint": 5})["push_token"] is None


def test_keys_that_no_table_of_ours_can_hold_are_counted_and_not_shown() -> None:
    odd = [sampled("A#nul\0"), sampled("no separator"), sampled(f"A#{'x' * 5000}")]
    result = compare([], [*odd, sampled("A#1")], 10)
    assert result.count("missing in PostgreSQL") == 4
    assert [one["client_id"] for one in result.shown()] == ["1"]


def test_a_disabled_push_is_not_the_same_as_an_unknown_one() -> None:
    assert compare([sampled("A#1", push_enabled=False)], [sampled("A#1", push_enabled=None)], 10).differences


def test_what_dynamodb_keeps_as_empty_counts_as_absent() -> None:
    here = sampled("A#1", language=None, attributes=None)
    assert not compare([here], [sampled("A#1", language="", attributes={})], 10).differences


def test_a_token_is_compared_by_its_digest_and_never_shown() -> None:
    found = fields_of_item(item(pushToken="secret-token", kind="fcm_token"))
    assert found is not None
    assert "secret-token" not in found
    assert json.loads(found)["push_token"] == hashlib.sha256(b"secret-token").hexdigest()


def test_a_subscription_is_compared_by_its_endpoint() -> None:
    web_push = {"endpoint": "https://push.example/1", "keys": {"p256dh": "p", "auth": "a"}}
    found = fields(webPush=web_push)
    assert found["push_token"] == hashlib.sha256(b"https://push.example/1").hexdigest()
    assert found["push_token_kind"] == "webpush"


def test_json_is_compared_by_what_it_says_and_not_by_how_it_is_written() -> None:
    there = fields(attributes={"b": [1, 2.0], "a": {"x": None}})
    here = {**there, "attributes": {"a": {"x": None}, "b": [1.0, 2]}}
    assert not compare([sampled("A#1", **here)], [sampled("A#1", **there)], 10).differences


def test_a_tokens_status_is_compared_only_where_the_item_has_one() -> None:
    here = sampled("A#1", push_token_status="invalid")
    assert not compare([here], [sampled("A#1", **fields())], 10).differences
    there = fields(pushToken="t", kind="apns", pushTokenStatus="valid")
    assert compare([here], [sampled("A#1", **there)], 10).different_fields()["push_token_status"] == 1


def test_only_some_differences_are_kept_and_all_are_counted() -> None:
    result = compare([sampled(f"A#{number}") for number in range(50)], [], 100)
    assert result.count("missing in DynamoDB") == 50
    assert len(result.shown()) == 20
    assert result.shown()[0].keys() == {"application_code", "client_id", "difference", "fields"}


KEYS = st.sets(st.integers(0, 60).map("A#{}".format))


@given(here=KEYS, there=KEYS, size=st.integers(1, 20))
def test_both_stores_pick_the_same_devices_though_each_brings_only_its_own_smallest(
    here: set[str], there: set[str], size: int
) -> None:
    def smallest(keys: set[str]) -> list[str]:
        return sorted(keys, key=lambda key: sample_hash("11", key))[:size]

    everything = compare(map(sampled, here), map(sampled, there), size)
    of_samples = compare(map(sampled, smallest(here)), map(sampled, smallest(there)), size)

    assert of_samples == everything
    expected = {key for key in smallest(here | there) if key not in here & there}
    assert {one.device_key for one in everything.differences} == expected


@given(values=st.lists(st.integers(0, 1000), max_size=200), size=st.integers(1, 10))
def test_whatever_the_order_the_smallest_are_all_let_in(values: list[int], size: int) -> None:
    smallest = Smallest(size)
    admitted = {value for value in values if smallest.admits(value)}
    assert admitted >= set(sorted(set(values))[:size])
    assert len(smallest._kept) <= size
