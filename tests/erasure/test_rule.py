"""Which message is erased, which loses a part, which stays."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clientmgr.base.customer_ids import CustomerId
from clientmgr.erasure.rule import (
    ERASE,
    KEEP,
    Decision,
    GoneAccount,
    GoneContact,
    GoneDevice,
    Known,
    Rewrite,
    Stored,
    verdict_on,
)
from tests.examples import examples
from tests.streaming.rig import event

CUSTOMER = CustomerId(7)
DELETED_AT = 1000
PUBLISHED = 2000
HASH = bytes(range(16))
KNOWN = Known(
    contacts={(CUSTOMER, 42): GoneContact(DELETED_AT, HASH)},
    devices={(CUSTOMER, "A", "gone"): GoneDevice(DELETED_AT, recorded_ms=1500)},
    tokens={(CUSTOMER, "gone-token"): GoneDevice(DELETED_AT, recorded_ms=1500)},
)


def judge(
    payload: object,
    known: Known = KNOWN,
    *,
    host_id: str = "7",
    user_id: str = "",
    published: int = PUBLISHED,
    **attributes: str,
) -> Decision:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    stored = Stored(data, host_id, user_id, attributes, published)
    return verdict_on(stored, stored.mentions(), known)


def sending(*contacts: int, **more: Any) -> dict[str, Any]:
    recipients = [{"contactId": contact, "contents": {"en": {"title": f"Hi {contact}"}}} for contact in contacts]
    return {
        "messageId": "m",
        "customerId": 7,
        "applicationCode": "A",
        "channel": "push",
        "recipients": recipients,
    } | more


@pytest.mark.parametrize("at", [DELETED_AT - 1, DELETED_AT, DELETED_AT + 1])
def test_what_names_a_deleted_contact_goes_whatever_its_time(at: int) -> None:
    assert judge({"customerId": 7, "contactId": 42, "occurredAt": at}) == ERASE


def test_another_customers_contact_of_the_same_number_stays() -> None:
    assert judge({"customerId": 8, "contactId": 42, "occurredAt": 1}) == KEEP


def test_a_deletion_that_is_still_to_be_carried_out_stays() -> None:
    assert judge({"customerId": 7, "contactId": 42, "deletedAt": DELETED_AT + 1}) == KEEP
    assert judge({"customerId": 7, "contactId": 42, "deletedAt": DELETED_AT}) == ERASE


def test_a_link_to_a_deleted_contact_keeps_its_envelope_and_the_hash() -> None:
    linked = event("contactLinked", client="c", at=DELETED_AT + 5, contactId=42)

    decision = judge(linked | {"email": "ada@example.com", "note": {"contactId": 42}}, user_id="42")

    assert isinstance(decision, Rewrite)
    assert json.loads(decision.payload) == linked | {"payload": {"contactHash": HASH.hex()}}
    assert decision.user_id == ""
    assert judge(decision.payload) == KEEP


def test_a_link_to_a_deleted_contact_keeps_our_own_attributes_alone() -> None:
    decision = judge(
        event("contactLinked", client="c", contactId=42),
        user_id="c",
        retryCount="42",
        errorClass="TenantWaits",
        firstPublishedAt="1763248000123",
        error="no",
        trace="ada@example.com",
    )

    assert isinstance(decision, Rewrite)
    assert decision.attributes == {
        "retryCount": "42",
        "errorClass": "TenantWaits",
        "firstPublishedAt": "1763248000123",
    }
    assert decision.user_id == "c"


@pytest.mark.parametrize(
    ("named", "left"),
    [
        ({"fromContactId": 42, "intoContactId": 43}, {"fromContactHash": HASH.hex(), "intoContactId": 43}),
        ({"fromContactId": 43, "intoContactId": 42}, {"fromContactId": 43, "intoContactHash": HASH.hex()}),
    ],
)
def test_a_merge_names_a_deleted_contact_by_its_hash(named: dict[str, int], left: dict[str, Any]) -> None:
    merge = {"eventId": "e", "eventType": "client.contactMerged", "customerId": 7, "occurredAt": 1}

    decision = judge(merge | {"payload": named, "email": "ada@example.com"}, user_id="ada@example.com")

    assert isinstance(decision, Rewrite)
    assert json.loads(decision.payload) == merge | {"payload": left}
    assert decision.user_id == ""


def test_a_link_that_the_writer_would_refuse_goes() -> None:
    assert judge(event("contactLinked", client="", contactId=42)) == ERASE
    assert judge(event("contactLinked", client="c", contactId="42")) == ERASE


def test_a_link_of_a_customer_stays_a_link_where_only_the_other_customers_contact_is_deleted() -> None:
    linked = event("contactLinked", customer=8, client="c", contactId=42)

    decision = judge(linked | {"note": {"customerId": 7}})

    assert isinstance(decision, Rewrite)
    assert json.loads(decision.payload) == linked


@pytest.mark.parametrize(("at", "decision"), [(DELETED_AT, ERASE), (DELETED_AT + 1, KEEP)])
def test_a_devices_messages_go_up_to_its_deletion(at: int, decision: Decision) -> None:
    assert judge(event(client="gone", at=at, hardwareId="h")) == decision


def test_a_message_from_the_future_says_nothing_by_its_time() -> None:
    assert judge(event(client="gone", at=PUBLISHED + 10**9), published=1400) == ERASE


def test_a_request_to_a_provider_that_went_out_before_we_knew_of_the_deletion_goes() -> None:
    request = {"customerId": 7, "contactId": 5, "applicationCode": "A", "clientId": "gone", "request": {}}
    back = Known(devices={(CUSTOMER, "A", "gone"): GoneDevice(DELETED_AT, 1500, exists=True)})

    assert judge(request, published=1500) == ERASE
    assert judge(request, published=1501) == KEEP
    assert judge(request, back, published=1500) == KEEP
    assert judge(request, back, published=DELETED_AT) == ERASE


def test_a_verdict_on_a_token_that_a_deleted_device_does_not_hold_goes_whatever_its_time() -> None:
    verdict = {"customerId": 7, "applicationCode": "A", "clientId": "gone", "status": "invalid", "occurredAt": 1999}
    held = Known(devices=KNOWN.devices, held=frozenset({(CUSTOMER, "A", "gone", "new")}))

    assert judge(verdict | {"pushToken": "old"}, held) == ERASE
    assert judge(verdict | {"pushToken": "new"}, held) == KEEP
    assert judge(verdict | {"endpoint": "old"}, held) == ERASE
    assert judge(verdict | {"pushToken": "new", "occurredAt": DELETED_AT}, held) == ERASE


def test_a_token_speaks_for_its_device_where_none_is_named() -> None:
    assert judge({"customerId": 7, "pushToken": "gone-token", "occurredAt": DELETED_AT}) == ERASE
    assert judge({"customerId": 7, "pushToken": "another", "occurredAt": DELETED_AT}) == KEEP


def test_of_a_sending_only_the_deleted_recipients_go() -> None:
    decision = judge(sending(1, 42, 2), error="Hi Ada", about="contact 42", kept="420")

    assert isinstance(decision, Rewrite)
    assert json.loads(decision.payload) == sending(1, 2)
    assert decision.attributes == {"kept": "420"}


def test_a_sending_without_any_recipient_left_goes() -> None:
    assert judge(sending(42, 42)) == ERASE


def test_a_sending_that_names_the_contact_outside_of_its_recipients_goes() -> None:
    assert judge(sending(1, 42, options={"contactId": 42})) == ERASE


@pytest.mark.parametrize(
    "payload", [{"customerId": 7, "x": 1}, b"none", event(client="c"), b'{"customerId":7,"contactId":9']
)
def test_all_messages_of_a_deleted_account_go(payload: object) -> None:
    assert judge(payload, Known(accounts={CUSTOMER: GoneAccount(PUBLISHED + 1)})) == ERASE


def test_an_accounts_message_goes_under_another_customers_label_and_the_other_way_round_stays() -> None:
    known = Known(accounts={CUSTOMER: GoneAccount(PUBLISHED + 1)})
    assert judge(event(customer=7, client="c"), known, host_id="8") == ERASE
    assert judge(event(customer=8, client="c"), known, host_id="7") == KEEP


def test_a_request_to_activate_a_deleted_account_again_stays() -> None:
    known = Known(accounts={CUSTOMER: GoneAccount(PUBLISHED)})
    assert judge({"eventId": "e", "customerId": 7, "occurredAt": 1}, known) == KEEP
    assert judge(event(client="c"), known) == ERASE


def test_of_an_account_that_came_back_only_the_messages_of_its_first_life_go() -> None:
    known = Known(accounts={CUSTOMER: GoneAccount(1000, before_ms=PUBLISHED)})
    assert judge(event(client="c"), known, published=PUBLISHED - 1) == ERASE
    assert judge(event(client="c"), known, published=PUBLISHED) == KEEP


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
others = st.integers(1, 10**6).filter(lambda contact: contact != 42)


@settings(max_examples=examples(100))
@given(st.dictionaries(st.text(max_size=8), json_values, max_size=5), others, st.text(max_size=8))
def test_what_names_nobody_who_is_deleted_stays(extra: dict[str, Any], contact: int, client: str) -> None:
    message = extra | event(client=f"x{client}", contactId=contact)
    assert judge(message) == KEEP


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(others | st.just(42), json_values), min_size=1, max_size=6))
def test_the_other_recipients_keep_their_bytes(recipients: list[tuple[int, Any]]) -> None:
    written = [json.dumps({"contactId": contact, "contents": contents}).encode() for contact, contents in recipients]
    payload = b'{"customerId": 7, "recipients": [ ' + b" , ".join(written) + b'], "n": 1.50}'
    left = [one for one, (contact, _) in zip(written, recipients, strict=True) if contact != 42]

    decision = judge(payload)

    if len(left) == len(written):
        assert decision == KEEP
    elif not left:
        assert decision == ERASE
    else:
        assert isinstance(decision, Rewrite)
        top = msgspec.json.decode(decision.payload, type=dict[str, msgspec.Raw])
        assert [bytes(one) for one in msgspec.json.decode(top["recipients"], type=list[msgspec.Raw])] == left
        assert bytes(top["n"]) == b"1.50"


@settings(max_examples=examples(100))
@given(st.dictionaries(st.text(max_size=8), json_values, max_size=5), st.integers(0, 10**4))
def test_nothing_that_names_the_deleted_contact_is_kept_as_it_is(extra: dict[str, Any], at: int) -> None:
    assert judge(extra | {"customerId": 7, "deep": [{"contactId": 42}], "occurredAt": at}) != KEEP
