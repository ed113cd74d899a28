"""Each operation, from the call to the device's row, on both transports; and what is wrong is refused by its field."""

from typing import Any

import msgspec
import pytest

from clientmgr.contracts import topics
from streaming import writer
from tests.intake.door import Door, now_ms

pytestmark = pytest.mark.anyio

WEB_PUSH = {"endpoint": "https://push.example/1", "keys": {"p256dh": "p", "auth": "a"}}


async def test_every_operation_reaches_the_row(any_door: Door) -> None:
    door, at = any_door, now_ms() - 60_000

    async def call(method: str, path: str, body: Any = None) -> None:
        nonlocal at
        at += 1
        answer = await door.call(method, f"/v1/devices/{path}?occurredAt={at}", body)
        assert answer.status_code == 202, answer.text

    await call("PUT", "c1", {"platform": "ios", "language": "de", "osVersion": "18"})
    await call("PATCH", "c1", {"language": "fr", "osVersion": None})
    await call("PUT", "c1/push-token", {"kind": "apns", "pushToken": "t1"})
    await call("PUT", "c1/push-settings", {"pushEnabled": True, "pushSettings": {"news": False}})
    await call("PUT", "c1/contact", {"contactId": 42})
    await call("POST", "c1/seen")
    seen_at = at
    await call("PUT", "c%2F2", {"platform": "web"})
    await call("PUT", "c%2F2/push-token", {"kind": "webpush", "webPush": WEB_PUSH})
    await call("PUT", "c3", {"platform": "android"})
    await call("PUT", "c3/push-token", {"kind": "fcm_token", "pushToken": "t3"})
    await call("DELETE", "c3/push-token")
    await call("PUT", "c3/contact", {"contactId": 43})
    await call("DELETE", "c3/contact")
    await call("PUT", "c4", {"platform": "ios"})
    await call("DELETE", "c4")
    await door.rig.burst(writer.DAEMON)

    rows = door.rig.devices()
    assert set(rows) == {"c1", "c/2", "c3"}
    one = rows["c1"]
    assert (one["platform"], one["language"], one["os_version"]) == ("ios", "fr", None)
    assert (one["push_token"], one["push_token_kind"], one["contact_id"]) == ("t1", "apns", 42)
    assert (one["push_enabled"], one["push_settings"]) == (True, {"news": False})
    assert one["last_seen_at"].timestamp() * 1000 == pytest.approx(seen_at, abs=1)
    assert rows["c/2"]["web_push"] == WEB_PUSH
    assert (rows["c3"]["push_token"], rows["c3"]["contact_id"]) == (None, None)
    assert door.rig.errors == []


@pytest.mark.parametrize("lines", [False, True], ids=["array", "lines"])
async def test_a_batch_is_the_writers_messages_in_order(any_door: Door, lines: bool) -> None:
    events = [
        {"eventId": f"e{n}", "eventType": "client.updated", "clientId": f"c{n}", "occurredAt": 1_763_248_000_123 + n}
        for n in range(3)
    ]
    body = b"\n".join(map(msgspec.json.encode, events)) if lines else msgspec.json.encode(events)
    content_type = "application/x-ndjson" if lines else "application/json"
    answer = await any_door.call("POST", "/v1/events", body, Content_Type=content_type)
    assert (answer.status_code, answer.json()) == (202, {"accepted": 3, "eventIds": ["e0", "e1", "e2"]})
    logged = any_door.rig.topic(topics.WRITER)
    assert [one.event for one in logged] == [
        {**event, "customerId": 7, "applicationCode": "A", "payload": {}} for event in events
    ]
    assert {one.tenant for one in logged} == {"7"}


async def test_an_id_may_be_given_in_a_header(door: Door) -> None:
    event = {"eventType": "client.updated", "clientId": "c"}
    one = await door.call("POST", "/v1/events", event, Idempotency_Key="k")
    batch = await door.call("POST", "/v1/events", [event, {**event, "eventId": "own"}], Idempotency_Key="k")
    device = await door.call("POST", "/v1/devices/c/seen", Idempotency_Key="seen-1")
    none = await door.call("POST", "/v1/devices/c/seen")
    assert one.json()["eventIds"] == ["k"]
    assert batch.json()["eventIds"] == ["k-0", "own"]
    assert device.json()["eventIds"] == ["seen-1"]
    assert len(none.json()["eventIds"][0]) == 36


EVENT = {"eventType": "client.updated", "clientId": "c"}


BAD = [
    ("PUT", "/v1/devices/c", {"platform": 5}, "platform"),
    ("PUT", "/v1/devices/c", [], "body"),
    ("PUT", "/v1/devices/c", b"{", "body"),
    ("PUT", "/v1/devices/c", b'{"a":1},"customerId":9,"x":{}', "body"),
    ("PATCH", "/v1/devices/c", {"attributes": {"a": "\0"}}, "attributes"),
    ("PUT", "/v1/devices/c?occurredAt=soon", {}, "occurredAt"),
    ("PUT", "/v1/devices/c?occurredAt=99999999999999", {}, "occurredAt"),
    ("PUT", "/v1/devices/%FF", {}, "clientId"),
    ("PUT", f"/v1/devices/{'c' * 513}", {}, "clientId"),
    ("PUT", "/v1/devices/c/push-token", {"kind": "apns"}, "pushToken"),
    ("PUT", "/v1/devices/c/push-token", {"kind": "pigeon", "pushToken": "t"}, "kind"),
    ("PUT", "/v1/devices/c/push-token", {"kind": "webpush", "webPush": {"endpoint": "e"}}, "webPush.keys"),
    ("PUT", "/v1/devices/c/push-settings", {"pushEnabled": "yes"}, "body.pushEnabled"),
    ("PUT", "/v1/devices/c/contact", {"contactId": 0}, "body.contactId"),
    ("PUT", "/v1/devices/c/contact", {"contactHash": "0" * 32}, "body.contactId"),
    ("POST", "/v1/events", {**EVENT, "eventType": "client.exploded"}, "eventType"),
    ("POST", "/v1/events", {"eventType": "client.updated"}, "clientId"),
    ("POST", "/v1/events", {**EVENT, "eventId": "a\0"}, "eventId"),
    ("POST", "/v1/events", {**EVENT, "payload": None}, "payload"),
    ("POST", "/v1/events", {**EVENT, "payload": {"language": 1}}, "payload.language"),
    ("POST", "/v1/events", {**EVENT, "customerId": "7"}, "customerId"),
    ("POST", "/v1/events", [], "body"),
    ("POST", "/v1/events", b"nothing", "message"),
]


async def test_what_is_wrong_is_refused_by_its_field(door: Door) -> None:
    for method, path, body, field in BAD:
        answer = await door.call(method, path, body)
        assert answer.status_code == 400, (path, body, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["errors"][0]["field"] == field, (path, body)
    assert door.rig.topic(topics.WRITER) == []


async def test_one_bad_event_has_its_batch_refused_by_its_number(door: Door) -> None:
    answer = await door.call("POST", "/v1/events", [EVENT, {**EVENT, "occurredAt": 0}, {"eventType": 1}])
    assert [(error["index"], error["field"]) for error in answer.json()["errors"]] == [
        (1, "occurredAt"),
        (2, "eventType"),
    ]
    assert door.rig.topic(topics.WRITER) == []


async def test_nobody_speaks_for_another_or_merges_contacts(door: Door) -> None:
    for claim in ({"customerId": 8}, {"applicationCode": "B"}):
        answer = await door.call("POST", "/v1/events", [EVENT, {**EVENT, **claim}])
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (403, next(iter(claim)))
    merge = {"eventType": "client.contactMerged", "payload": {"fromContactId": 1, "intoContactId": 2}}
    assert (await door.call("POST", "/v1/events", merge)).status_code == 403
    own = {"customerId": 7, "applicationCode": "A"}
    assert (await door.call("POST", "/v1/events", {**EVENT, **own})).status_code == 202
    assert len(door.rig.topic(topics.WRITER)) == 1


async def test_other_places_are_refused(door: Door) -> None:
    for method, path, status in (
        ("GET", "/v1/events", 405),
        ("GET", "/v1/devices/c", 405),
        ("PUT", "/v1/devices/c/unknown", 404),
        ("PUT", "/v1/devices/", 404),
        ("PUT", "/v1/devices//contact", 404),
        ("GET", "/", 404),
        ("POST", "/healthz", 405),
    ):
        assert (await door.call(method, path, {})).status_code == status, path
