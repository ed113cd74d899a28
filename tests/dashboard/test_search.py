"""One search over all tenants, what tenants are called, and a device's story: bounded, masked, and honest about it."""

import asyncio
import json
from typing import Any

import pytest

from clientmgr.audit.log import PLATFORM
from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Message
from clientmgr.contracts import topics
from clientmgr.devices import search
from clientmgr.devices.search import Found, search_tenants
from tests.dashboard.house import BUSY, CONTACT, MISCHIEF, QUIET, SECRET, House, Visit
from tests.streaming.rig import NOW, event


@pytest.fixture(scope="module", autouse=True)
def furnished(house: House) -> None:
    house.publish_and_write(
        event("registered", customer=QUIET, client="c1"),
        event("contactLinked", customer=QUIET, client="c1", contactId=CONTACT),
        event("registered", customer=QUIET, client="gone"),
        event("deleted", customer=QUIET, client="gone"),
        event("registered", customer=BUSY, client="over"),
        event("deleted", customer=BUSY, client="over", at=NOW + 1),
    )


def asked(visit: Visit, text: str, **more: object) -> dict[str, Any]:
    headers = {"X-CSRF-Token": visit.get("/api/v1/session").json()["csrfToken"]}
    answer = visit.post("/api/v1/search", json={"text": text, **more}, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def directly(house: House, text: str, *, after: int = 0, within_s: float = 60) -> Found:
    return search_tenants(
        house.database, KeyedHashes.from_settings(house.settings), text, after=after, within_s=within_s
    )


def hits(found: Found) -> list[tuple[str, int, str | None]]:
    return [(one.kind, one.customer_id, one.client_id) for one in found.hits]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c1", [("device", BUSY, "c1"), ("device", QUIET, "c1")]),
        (str(CONTACT), [("contact", BUSY, None), ("contact", QUIET, None)]),
        ("gone", [("deleted device", QUIET, "gone")]),
        (SECRET, [("token", BUSY, "c1")]),
        (SECRET[:-1], []),
        (MISCHIEF, [("device", BUSY, MISCHIEF)]),
    ],
)
def test_what_is_asked_for_is_found_in_whichever_tenant_it_is(
    house: House, text: str, expected: list[tuple[str, int, str | None]]
) -> None:
    found = directly(house, text)
    assert hits(found) == expected
    assert (found.searched, found.left, found.go_on_after, found.unreadable) == (2, 0, None, [])


def test_it_stops_at_enough_hits_and_at_the_end_of_its_time_and_goes_on_from_there(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_HITS", 1)
    monkeypatch.setattr(search, "CONNECTIONS", 1)
    first = directly(house, "c1")
    assert (hits(first), first.left, first.go_on_after) == ([("device", BUSY, "c1")], 1, BUSY)
    assert hits(directly(house, "c1", after=BUSY)) == [("device", QUIET, "c1")]
    none = directly(house, "c1", after=7, within_s=-1)
    assert (none.hits, none.searched, none.left, none.go_on_after) == ([], 0, 2, 7)


def test_a_tenant_that_can_not_be_asked_is_named_and_the_others_are_searched(spare_house: House) -> None:
    spare_house.query(f"ALTER TABLE {quoted_schema(CustomerId(QUIET))}.contact_tombstones RENAME TO elsewhere")
    found = directly(spare_house, "c1")
    assert (hits(found), found.unreadable, found.searched) == ([("device", BUSY, "c1")], [QUIET], 1)


def test_tenants_have_names_that_operators_give_and_everybody_finds(
    viewer: Visit, operator: Visit, house: House
) -> None:
    named = {"customerId": QUIET, "name": f" Quiet & Sons {MISCHIEF[:10]} "}
    assert viewer.submit("/tenants/rename", named).status_code == 403
    assert operator.submit("/tenants/rename", named).status_code == 303
    assert operator.submit("/tenants/rename", named).status_code == 303
    assert [row[:3] for row in house.audited("tenant.rename")] == [(QUIET, "dashboard:otto", "named")], "once"
    (found,) = asked(viewer, "quiet & s")["tenants"]
    assert (found["customerId"], found["status"]) == (QUIET, "active")
    assert "Quiet &amp; Sons" in viewer.see("/tenants?search=sons")
    assert "Quiet &amp; Sons" in viewer.see(f"/tenants/{QUIET}")
    assert operator.submit("/tenants/rename", {"customerId": QUIET}).status_code == 303
    assert asked(viewer, "quiet & s")["tenants"] == []
    assert operator.submit("/tenants/rename", {"customerId": PLATFORM, "name": "x"}).status_code == 400


def test_a_viewer_searches_by_a_form_and_no_token_is_shown_or_in_an_address(viewer: Visit) -> None:
    answer = viewer.submit("/search", {"text": SECRET})
    assert answer.status_code == 200
    assert "holds this token" in answer.text
    assert SECRET not in answer.text
    assert answer.url.query == b""
    assert "1001" in viewer.submit("/search", {"text": "1001"}).text
    assert "Nothing found" in viewer.submit("/search", {"text": "no such thing"}).text
    assert "<h1>Search</h1>" in viewer.submit("/search", {"text": "  "}).text


def test_a_devices_story_joins_what_is_kept_with_what_the_log_has(house: House, visit: Visit) -> None:
    # The house labels all messages as this tenant's, those about the other's device of the same name too.
    with_log = {one["what"]: one for one in story(visit, BUSY, "c1") if one["topic"]}
    assert with_log["registered"]["topic"] == topics.WRITER
    assert with_log["linked to a contact"]["detail"] == f"contact {CONTACT}"
    assert with_log["linked to a contact"]["eventId"]
    its_page = visit.see(f"/devices/one?customerId={BUSY}&applicationCode=A&clientId=c1")
    offset = int(with_log["registered"]["offset"])
    its_message = f"/messages/topic?topic={topics.WRITER}&before={offset + 1}"
    assert its_message.replace("&", "&amp;") in its_page
    assert f">{offset}</th>" in visit.see(its_message), "the link leads to the message"
    deleted = story(visit, BUSY, "over")
    assert [one["what"] for one in deleted] == ["deleted", "registered"]
    house.query("DELETE FROM clientmgr.outbox_message_t WHERE host_id = %s", str(BUSY))
    kept = story(visit, BUSY, "c1")
    assert {"set", "push token set", "linked to a contact", "first written here"} <= {one["what"] for one in kept}
    assert [one for one in kept if one["eventId"]] == []
    page = visit.see(f"/devices/one?customerId={BUSY}&applicationCode=A&clientId=c1")
    assert "Not kept: earlier values and tokens" in page


def test_what_was_sent_what_was_not_and_what_providers_said_is_in_the_story(house: House, visit: Visit) -> None:
    whom = {"customerId": QUIET, "applicationCode": "A", "clientId": "c1"}
    sent = {**whom, "outMessageId": "o1", "messageId": "m1", "provider": "apple", "request": {"deviceToken": SECRET}}
    verdict = {**whom, "eventId": "v1", "pushToken": SECRET, "status": "invalid", "reason": f"token={SECRET}"}
    not_sent = {"customerId": QUIET, "messageId": "m2", "devices": [{"clientId": "c1", "reason": "CRITERIA"}]}
    others = {**sent, "customerId": BUSY}

    async def publish() -> None:
        async with open_broker(house.settings, house.database) as broker:
            for topic, body in (
                (topics.DeviceMapperTopics("tx", "dg00").outputs["apple"], sent),
                (topics.PUSH_TOKEN_STATUS, {**verdict, "occurredAt": NOW + 5}),
                (topics.NOT_SENT, not_sent),
                (topics.NOT_SENT, others),
            ):
                await broker.ensure_topic(topic)
                await broker.publish(topic, [Message(json.dumps(body).encode(), str(QUIET))])

    asyncio.run(publish())
    found = {one["what"]: one for one in story(visit, QUIET, "c1") if one["topic"]}
    assert (found["sent"]["eventId"], found["sent"]["detail"]) == ("o1", "to apple, message m1")
    assert (found["not sent"]["eventId"], found["not sent"]["detail"]) == ("m2", "CRITERIA")
    assert found["verdict on its push token"]["eventId"] == "v1"
    assert "invalid" in found["verdict on its push token"]["detail"]
    assert SECRET not in str(found)


def story(visit: Visit, customer: int, client: str) -> list[dict[str, str]]:
    where: dict[str, str | int] = {"customerId": customer, "applicationCode": "A", "clientId": client}
    found: list[dict[str, str]] = visit.get("/api/v1/devices/one", params=where).json()["timeline"]
    return found
