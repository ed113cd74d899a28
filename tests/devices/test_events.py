"""Events are decoded or refused by the name of the field that is wrong; nothing else ever happens."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clientmgr.base.errors import is_permanent
from clientmgr.contracts.decoding import FUTURE_TOLERANCE_MS, InvalidMessageError
from clientmgr.contracts.device_events import decode_event
from clientmgr.devices.fold import TenantHashes, fold
from clientmgr.devices.rows import row_of
from clientmgr.devices.state import canonical
from tests.devices.histories import HASHES
from tests.devices.malformed import GOOD, MALFORMED
from tests.examples import examples


@pytest.mark.parametrize("name", MALFORMED)
def test_a_wrong_message_is_refused_by_the_name_of_its_field(name: str) -> None:
    message, field = MALFORMED[name]
    with pytest.raises(InvalidMessageError) as refusal:
        decode_event(message)
    assert str(refusal.value).startswith((f"{field}:", f"{field}["))
    assert is_permanent(refusal.value)


@pytest.mark.parametrize("kind", ["pushTokenCleared", "contactUnlinked", "deleted"])
def test_a_payload_of_which_nothing_is_read_is_an_object_all_the_same(kind: str) -> None:
    message = GOOD | {"eventType": f"client.{kind}"}
    for good in ({}, {"unknown": 1}, None):
        assert decode_event(json.dumps(message | {"payload": good}).encode()).payload is None
    wrong: object
    for wrong in (False, 0, "text", []):
        with pytest.raises(InvalidMessageError, match=r"^payload: expected `object"):
            decode_event(json.dumps(message | {"payload": wrong}).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"nonsense", b'{"eventId": "\xff"}', b"[" * 100_000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessageError):
        decode_event(data)


def test_a_clock_may_be_five_minutes_ahead_and_no_more() -> None:
    now = 1_763_248_000_000
    on_time = json.dumps(GOOD | {"occurredAt": now + FUTURE_TOLERANCE_MS}).encode()
    assert decode_event(on_time, now_ms=now).event.occurred_at == now + FUTURE_TOLERANCE_MS
    with pytest.raises(InvalidMessageError, match="occurredAt"):
        decode_event(json.dumps(GOOD | {"occurredAt": now + FUTURE_TOLERANCE_MS + 1}).encode(), now_ms=now)


def test_unknown_fields_do_not_matter_whatever_they_hold() -> None:
    odd: dict[str, Any] = {"x": "\0", "y": [[[{}]]] * 200, "eventVersion": None}
    decoded = decode_event(json.dumps(GOOD | odd | {"payload": {"language": "en", "zz": "\0"}}).encode())
    assert decoded.customer_id == 7


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    decode_event(json.dumps(GOOD | {"payload": {"language": "\\u0000"}}).encode())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)
spoilt = st.builds(
    lambda changes, payload, kind: GOOD | {"eventType": f"client.{kind}", "payload": payload} | changes,
    st.dictionaries(st.sampled_from([*GOOD, "extra"]), json_values, max_size=2),
    st.dictionaries(
        st.sampled_from(
            [
                "language",
                "pushEnabled",
                "attributes",
                "pushSettings",
                "kind",
                "pushToken",
                "contactId",
                "contactHash",
                "intoContactId",
            ]
        ),
        json_values,
        max_size=3,
    ),
    st.sampled_from(["registered", "updated", "pushTokenSet", "contactLinked", "contactMerged", "deleted"]),
)


@settings(max_examples=examples(600), deadline=None)
@given(spoilt)
def test_any_message_is_refused_or_can_be_written(message: dict[str, Any]) -> None:
    try:
        decoded = decode_event(json.dumps(message).encode(), now_ms=int(time.time() * 1000))
    except InvalidMessageError:
        return
    changes = fold([decoded, decoded], TenantHashes(HASHES, decoded.customer_id))
    rows = msgspec.json.encode(
        [row_of(device, changes.names[device], state) for device, state in changes.devices.items()]
    )
    assert b"\\u0000" not in rows.replace(b"\\\\", b"")


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessageError):
        decode_event(data)


@pytest.mark.parametrize(("sent", "kept"), [(1e23, 10**23), (1.0, 1), (-0.0, 0), (1e300, 10**300), (2.5, 2.5)])
def test_a_number_counts_as_the_same_when_it_comes_back_from_the_database(sent: float, kept: float) -> None:
    assert canonical({"n": [sent]}) == canonical({"n": [kept]})
