"""What a stored message is about, whatever it looks like."""

import json
import time

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.erasure.recognition import Mentions, customers_in, mentions

DEVICE = ("EMS11", "c-1")


def of(payload: object, host_id: str = "", user_id: str = "", **attributes: str) -> Mentions:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return mentions(data, host_id, user_id, attributes)


def test_a_writer_message_names_its_customer_its_device_and_its_time() -> None:
    found = of({"customerId": 7, "applicationCode": "EMS11", "clientId": "c-1", "occurredAt": 5, "payload": {}})

    assert found == Mentions(
        frozenset({CustomerId(7)}), frozenset(), frozenset({DEVICE}), applications=frozenset({"EMS11"}), occurred_at=5
    )


@pytest.mark.parametrize(
    "payload",
    [
        {"contactId": 42},
        {"contactId": "42"},
        {"contact_id": 42},
        {"payload": {"contactId": 42}},
        {"recipients": [{"contents": {}}, {"contactId": 42}]},
        {"contactIds": [42]},
        [[{"a": [{"fromContactId": 42}]}]],
        {"intoContactId": 42},
        b'{"contactId": 42, "contactId": "none"}',
        b'{"contact\\u0049d": 42}',
        b'{"text": "{\\"contactId\\": 42}"}',
        b'{"customerId": 7, "contactId" : 42, "contents": {"en": "cut o',
        b'\xff\xfe"contactId":42',
        b'"contactId":"42"',
        b"[" * 5000 + b'{"contactId":42}',
        {"contactId": " 42"},
        {"contactId": "42.0"},
        {"contact-id": 42},
        b"{'customerId': 7, 'contactId': 42, 'email': 'ada@example.com'}",
        b"customerId=7&contactId=42&email=ada@example.com",
        b"customerId=7&data=%7B%22contactId%22%3A+%2242%22%7D",
        b"{customerId:7,contactId:42",
        b"<contactId>42</contactId>",
        b"Contact-Id: 42\r\nX: 1",
        b'{"customerId": 7, "contactId": 42.0, "cut": "o',
        b'{"customerId": 7, "contactIds": [42',
        b'{"contactId":42,"in":"\\\\\\"contactId\\\\\\":42',
        b'"{\\n \\"contactId\\":\\n  42}"',
        '{"contactId":42'.encode("utf-16"),
    ],
)
def test_a_contact_is_found_wherever_it_stands(payload: object) -> None:
    assert of(payload).contacts == {42}


@pytest.mark.parametrize(
    "payload",
    [
        {"contactIds": [1, 2, 3], "note": '{"contactId":42}'},
        {"contactIds": [1, 2, 3], "note": "contactId=42"},
        {"contactIds": [1, 2, 3, "42"]},
        b'{"contact\\u0049ds": [1, 2, 3], "note": "{\\"contactId\\":42}"}',
        b'{"customerId":7,"contactIds":[1, 2,\n 3,42],"email":"ada@exam',
        b"contactIds=1,2,3,42&note=",
        b"{'contactIds': ['1', '2', '3', '42'], 'n",
    ],
)
def test_a_contact_is_found_beside_a_list_of_others(payload: object) -> None:
    assert of(payload).contacts == {1, 2, 3, 42}


@pytest.mark.parametrize(
    "payload",
    [
        b'{"contactId": 420, "x',
        b"contactId=420&n=42",
        b"{'contactId': 42.5, 'x': 42}",
        b"contactId=,42",
        b'{"contactId":' + b"42" * 15,
        b"contact 42",
    ],
)
def test_a_text_with_another_number_does_not_name_the_contact(payload: bytes) -> None:
    assert 42 not in of(payload).contacts


@pytest.mark.parametrize("value", [True, 0, -4, 1.5, None, "x", "", 2**63, "9" * 30, {}, []])
def test_what_can_be_no_contact_is_none(value: object) -> None:
    assert of({"contactId": value}).contacts == frozenset()


@pytest.mark.parametrize(
    "payload",
    [
        {"applicationCode": "EMS11", "devices": [{"clientId": "c-1", "reason": "x"}]},
        {"applicationCode": "EMS11", "deep": {"deeper": {"clientId": "c-1"}}},
        {"deep": {"applicationCode": "EMS11", "clientId": "c-1"}},
        b'{"applicationCode":"EMS11","clientId":"c-1","attributes":{"e": ',
        b'{"applicationCode":"EMS11","clientId":"c\\u002d1"',
        b"{'applicationCode': 'EMS11', 'clientId': 'c-1'}",
        b"applicationCode=EMS11&clientId=c-1&x=1",
        b"<applicationCode>EMS11</applicationCode><clientId>c-1</clientId>",
        b"{applicationCode:EMS11,clientId:c-1}",
        b'{"clientIds":["c-1"],"text":"applicationCode=EMS11, clientId=c-1',
    ],
)
def test_a_device_takes_the_application_around_it(payload: object) -> None:
    assert of(payload).devices == {DEVICE}


def test_a_device_without_an_application_is_named_all_the_same() -> None:
    assert of({"devices": [{"clientId": "c-1"}]}).devices == {("", "c-1")}


@pytest.mark.parametrize(
    "payload",
    [
        {"payload": {"pushToken": "t"}},
        {"endpoint": "t"},
        {"payload": {"webPush": {"endpoint": "t", "keys": {}}}},
        {"request": {"deviceToken": "t"}},
        {"request": {"message": {"fid": "t"}}},
        {"request": {"message": {"token": ["t"]}}},
        {"request": {"subscription": {"endpoint": "t"}}},
        b'{"pushToken":"t',
        b"{'pushToken': 't'}",
        b"push_token=t&x=1",
        b"{tokens:[t",
    ],
)
def test_tokens_are_found_in_events_verdicts_and_requests_to_providers(payload: object) -> None:
    assert of(payload).tokens == {"t"}


@pytest.mark.parametrize(
    ("payload", "host_id", "customers"),
    [
        ({"customerId": 7}, "8", {7}),
        ({"customerId": "7"}, "", {7}),
        ({}, "8", {8}),
        ({"customerId": "none"}, "8", {8}),
        (b'broken "customerId": 7', "8", {7}),
        (b"{'customerId': 7", "8", {7}),
        (b"contactId=1&customerId=7", "8", {7}),
        (b"parentCustomerId=7", "8", {8}),
        ({"parentCustomerId": 7}, "8", {8}),
        (b"\x00", "not a customer", set()),
    ],
)
def test_the_data_says_whose_it_is_and_the_label_only_where_it_does_not(
    payload: object, host_id: str, customers: set[int]
) -> None:
    assert of(payload, host_id).customers == customers
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    assert customers_in(data, host_id) == customers


def test_the_key_counts_where_the_data_names_nobody() -> None:
    assert of({"customerId": 7}, user_id="42").contacts == {42}
    assert of({"customerId": 7, "applicationCode": "EMS11"}, user_id="c-1").devices == {DEVICE}
    assert of({"applicationCode": "EMS11", "clientId": "c-1"}, user_id="42").contacts == frozenset()


def test_attributes_are_looked_at_too() -> None:
    assert of({}, contactId="42").contacts == {42}


def test_deletions_and_verdicts_are_told_by_their_fields() -> None:
    assert of({"contactId": 42, "deletedAt": 9}).is_deletion
    assert of({"contactId": 42, "deletedAt": 9}).occurred_at == 9
    assert of({"applicationCode": "a", "clientId": "c", "pushToken": "t", "status": "valid"}).is_verdict
    assert not of({"applicationCode": "a", "clientId": "c", "payload": {"pushToken": "t"}}).is_verdict


def test_a_text_that_repeats_what_may_stand_between_is_read_in_a_moment() -> None:
    for between in (b"\\", b"\\n", b" ", b'\\"', b"[", b":"):
        began = time.process_time()
        of(b"contactId" + between * 200_000 + b"clientId" + between * 200_000)
        assert time.process_time() - began < 5
