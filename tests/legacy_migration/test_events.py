"""An item of the legacy store as events: its own times, the mapper's reading of it, refusals by field. Pure."""

from typing import Any

import msgspec
import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.legacy_migration.events import OLDEST, ImportedDevice, StoredItem, UnnameableError, read_item, reason_of
from tests.legacy_migration.items import stored_item

NOW = 1_763_248_000_000
CUSTOMER = CustomerId(7)


def read(device_key: str = "APP#c1", contact: object = 42, **attributes: Any) -> ImportedDevice:
    return read_item(CUSTOMER, stored_item(device_key, contact, **attributes), now_ms=NOW)


def said(device: ImportedDevice) -> list[tuple[str, int, dict[str, Any]]]:
    return [
        (one.event.event_type, one.event.occurred_at, msgspec.json.decode(one.event.payload)) for one in device.events
    ]


def test_an_item_is_a_registration_a_link_and_a_token_at_its_own_time() -> None:
    device = read(
        platform="ios",
        language="de",
        attributes={"tier": "gold"},
        pushToken="t-1",
        kind="apns",
        updatedAt=1000,
        createdAt=500,
        anythingElse="stays there",
    )
    assert said(device) == [
        ("client.registered", 1000, {"platform": "ios", "language": "de", "attributes": {"tier": "gold"}}),
        ("client.contactLinked", 1000, {"contactId": 42}),
        ("client.pushTokenSet", 1000, {"kind": "apns", "pushToken": "t-1"}),
    ]
    assert device.verdict is None


def test_a_later_sign_of_life_is_one_and_changes_nothing_else() -> None:
    assert said(read(updatedAt=1000, lastSeenAt=2000))[-1] == ("client.updated", 2000, {})
    assert len(said(read(updatedAt=2000, lastSeenAt=1000))) == 2


@pytest.mark.parametrize("times", [{}, {"updatedAt": NOW * 2}, {"updatedAt": "yesterday"}, {"createdAt": -5}])
def test_an_item_without_a_time_of_the_past_is_older_than_every_event(times: dict[str, Any]) -> None:
    assert {at for _, at, _ in said(read(platform="ios", **times))} == {OLDEST}


def test_an_invalid_token_comes_with_its_verdict() -> None:
    device = read(pushToken="t-1", kind="fcm_token", pushTokenStatus="invalid", updatedAt=1000)
    assert device.verdict is not None
    assert (device.verdict.status, device.verdict.occurred_at) == ("invalid", 1000)


def test_a_browsers_subscription_is_its_token() -> None:
    subscription = {"endpoint": "https://push.example/1", "keys": {"p256dh": "p", "auth": "a"}}
    assert said(read(webPush=subscription, updatedAt=9))[-1][2] == {"kind": "webpush", "webPush": subscription}


@pytest.mark.parametrize(
    ("device_key", "contact"), [("no separator", 42), ("#c1", 42), ("APP#", 42), ("APP#c1", "x"), ("APP#c1", 0)]
)
def test_what_no_device_can_be_called_is_passed_over(device_key: str, contact: object) -> None:
    with pytest.raises(UnnameableError):
        read(device_key, contact)


@pytest.mark.parametrize(
    ("attributes", "field"),
    [
        ({"webPush": {"endpoint": "https://push.example/secret"}}, "payload.webPush.keys"),
        ({"kind": "fcm_token", "pushToken": "x" * 9000}, "payload.pushToken"),
    ],
)
def test_what_an_event_could_not_carry_is_rejected_by_field_and_the_reason_holds_no_data(
    attributes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        read(**attributes)
    reason = reason_of(refused.value)
    assert reason.startswith(field)
    assert "secret" not in reason
    assert "xx" not in reason


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"platform": {}}', '{"platform": {"N": "one"}}'])
def test_what_is_not_dynamodbs_json_is_rejected(text: str) -> None:
    with pytest.raises(InvalidMessageError):
        read_item(CUSTOMER, StoredItem("APP#c1", "42", text), now_ms=NOW)
