"""Actions that concern many: they ask first, say what they change, need the role, and are in the audit log."""

import csv
import io
import json
from typing import Any

import pytest

from clientmgr.contracts import topics
from clientmgr.contracts.lifecycle import decode_activation, decode_deletion
from clientmgr.contracts.publishers import actor_of
from clientmgr.operations.failures import finding
from tests.dashboard.house import BUSY, MISCHIEF, QUIET, SECRET, House, Visit, hidden
from tests.streaming.rig import event

FLIPPER = "CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER"


def published(house: House, topic: str) -> list[tuple[bytes, dict[str, str]]]:
    return house.query(
        "SELECT m.payload, m.attributes FROM clientmgr.outbox_message_t AS m"
        " JOIN clientmgr.log_counter AS c ON c.id = m.topic_id WHERE c.topic = %s ORDER BY m.c_offset",
        topic,
    )


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_flipper_for_all_asks_first_and_says_what_it_changes(house: House, visit: Visit) -> None:
    visit.submit("/switches/flippers", {"name": FLIPPER, "customerId": QUIET, "state": "on"})
    before = len(house.audited("flipper.set"))
    answer = visit.submit("/switches/flippers", {"name": FLIPPER, "state": "off"})
    assert answer.status_code == 200
    assert "It changes 1 tenant. Not changed, because of a setting of its own: 1 tenant." in answer.text
    assert "In the last hour the device mappers were sent 0 messages" in answer.text
    assert "1 tenant would be read from the legacy store again." in answer.text
    assert len(house.audited("flipper.set")) == before, "nothing is done yet"
    agreed = {**{name: values[0] for name, values in hidden(answer.text).items()}, "state": "off"}
    assert "done=changed" in visit.submit("/switches/flippers", agreed).headers["location"]
    assert house.audited("flipper.set")[-1][:3] == (0, "dashboard:local", "off")
    preview = visit.get("/api/v1/flippers/preview", params={"name": FLIPPER, "enabled": "true"}).json()
    assert (preview["tenants"], preview["ownSettings"], preview["stopReadingLegacy"]) == (1, 1, 1)
    visit.submit("/switches/flippers", {"name": FLIPPER, "customerId": QUIET, "state": "unset"})
    visit.submit("/switches/flippers", {"name": FLIPPER, "state": "on", "agreed": "true"})


def test_a_subscription_is_paused_with_a_reason_shown_as_paused_and_resumed(house: House, visit: Visit) -> None:
    asked = visit.see(f"/messages/pause?subscription={topics.WRITER}")
    assert "none is lost" in asked
    refused = visit.submit("/messages/pause", {"subscription": topics.WRITER})
    assert refused.status_code == 400, "it wants a reason"
    assert 'id="refused"' in refused.text
    done = visit.submit("/messages/pause", {"subscription": topics.WRITER, "reason": "a bad release"})
    assert done.headers["location"] == "/messages?done=paused"
    assert house.audited("subscription.pause")[-1][1:3] == ("dashboard:local", "paused")
    house.publish_and_write(event("registered", customer=BUSY, client="while-paused"))
    assert "while-paused" not in house.devices()
    page = visit.see("/messages")
    assert "by dashboard:local: a bad release" in page
    api = {"X-CSRF-Token": visit.get("/api/v1/session").json()["csrfToken"]}

    def writer() -> tuple[str, list[str]]:
        overview = visit.get("/api/v1/overview").json()
        (state,) = [one["state"] for one in overview["daemons"] if one["name"] == "writer"]
        return state, [one["text"] for one in overview["problems"] if "paused" in one["text"]]

    assert writer()[0] == "paused"
    assert f"{topics.WRITER} is paused by dashboard:local" in writer()[1]
    assert "paused</span>" in visit.see("/")
    resumed = visit.post("/api/v1/subscriptions/resume", json={"subscription": topics.WRITER}, headers=api)
    assert resumed.json() == {"changed": True}
    assert visit.submit("/messages/resume", {"subscription": topics.WRITER}).headers["location"].endswith("unchanged")
    house.publish_and_write()
    assert "while-paused" in house.devices()
    unknown = visit.post("/api/v1/subscriptions/pause", json={"subscription": "no", "reason": "r"}, headers=api)
    assert unknown.status_code == 404


def test_a_tenant_is_activated_and_deleted_by_messages_in_ones_own_name(house: House, visit: Visit) -> None:
    visit.submit("/tenants/activate", {"customerId": 7001})
    ((data, attributes),) = published(house, topics.ACTIVATE_CUSTOMER)
    assert decode_activation(data, actor_of(attributes)).customer_id == 7001
    assert actor_of(attributes) == "dashboard:local"
    assert house.audited("tenant.activation_requested")[-1][:3] == (7001, "dashboard:local", "published")
    refused = visit.submit(f"/tenants/{QUIET}/delete", {"confirm": BUSY})
    assert refused.status_code == 400
    assert f"<h1>Tenant {QUIET}</h1>" in refused.text
    assert published(house, topics.ACCOUNT_DELETION) == []
    done = visit.submit(f"/tenants/{QUIET}/delete", {"confirm": QUIET})
    assert done.headers["location"] == f"/tenants/{QUIET}?done=deletion"
    ((data, attributes),) = published(house, topics.ACCOUNT_DELETION)
    assert decode_deletion(data, actor_of(attributes)).customer_id == QUIET
    assert house.audited("account.deletion_requested")[-1][:2] == (QUIET, "dashboard:local")
    assert visit.submit("/tenants/7002/delete", {"confirm": 7002}).status_code == 404, "it never was"


def test_a_tenants_orphans_are_kept_from_its_page(house: House, visit: Visit) -> None:
    visit.submit(f"/tenants/{BUSY}/keep-orphans", {"reason": "they move"})
    assert "orphans kept" in visit.see(f"/tenants/{BUSY}")
    visit.submit(f"/tenants/{BUSY}/release-orphans", {})
    assert "orphans kept" not in visit.see(f"/tenants/{BUSY}")


@pytest.mark.parametrize(
    "path",
    [
        "/tenants/activate",
        f"/tenants/{BUSY}/delete",
        f"/tenants/{BUSY}/keep-orphans",
        f"/tenants/{BUSY}/release-orphans",
        "/messages/pause",
        "/messages/resume",
    ],
)
def test_viewers_change_nothing_and_see_no_button(viewer: Visit, path: str) -> None:
    assert viewer.submit(path, {"confirm": BUSY, "reason": "r", "subscription": topics.WRITER}).status_code == 403
    assert 'action="/tenants/' not in viewer.see(f"/tenants/{BUSY}")
    assert "Pause …" not in viewer.see("/messages")
    assert viewer.get(f"/messages/pause?subscription={topics.WRITER}").status_code == 403


def test_a_topics_messages_are_shown_masked_newest_first_and_bounded(house: House, visit: Visit) -> None:
    page = visit.see(f"/messages/topic?topic={topics.WRITER}")
    assert "pushTokenSet" in page
    assert SECRET not in page

    def offsets(**wanted: Any) -> list[int]:
        answer = visit.get("/api/v1/topics/messages", params={"topic": topics.WRITER, **wanted}).json()
        return [one["offset"] for one in answer["items"]]

    first = visit.get("/api/v1/topics/messages", params={"topic": topics.WRITER, "limit": 2}).json()
    assert first["items"][0]["offset"] == first["items"][1]["offset"] + 1
    assert offsets(limit=2, before=first["next"])[0] == first["next"] - 1
    assert offsets(tenant="31415") == []
    assert offsets(until="2020-01-01T00:00:00Z") == []
    assert offsets(until="2999-01-01T00:00:00Z") == offsets()
    assert visit.get("/messages/topic?topic=nowhere").status_code == 404


def test_the_audit_log_is_searched_across_tenants_and_saved_without_formulas(house: House, visit: Visit) -> None:
    for customer, reason in ((BUSY, "one"), (QUIET, "=two")):
        visit.submit("/switches/exclusions", {"customerId": customer, "reason": reason})

    def found(**wanted: Any) -> list[int]:
        answer = visit.get("/api/v1/audit", params=wanted).json()
        return [row["customerId"] for row in answer["items"]]

    assert found(action="orphans.exclude", actor="local")[:2] == [QUIET, BUSY]
    assert found(action="orphans.exclude", actor="nobody-of-that-name") == []
    assert set(found(customerId=BUSY)) == {BUSY}
    assert found(until="2020-01-01T00:00:00Z") == []
    everything = visit.get("/api/v1/audit", params={"limit": 3}).json()
    following = visit.get("/api/v1/audit", params={"limit": 3, "before": everything["next"]}).json()
    keys = [(row["customerId"], row["seq"]) for row in everything["items"] + following["items"]]
    assert len(set(keys)) == 6, "no row twice, none left out"
    rows = rows_of(visit.see("/audit.csv?action=orphans.exclude"))
    assert json.loads(rows[0]["details"])["reason"] == "=two"
    assert {row["actor"] for row in rows} == {"dashboard:local"}
    assert all(not cell.startswith(("=", "@")) for row in rows_of(visit.see("/audit.csv")) for cell in row.values())
    for customer in (BUSY, QUIET):
        visit.submit("/switches/exclusions/remove", {"customerId": customer})


def test_the_tenants_table_is_saved_as_it_is_filtered(visit: Visit) -> None:
    rows = rows_of(visit.see("/tenants.csv?sort=customerId&order=asc"))
    assert [row["customer_id"] for row in rows] == [str(BUSY), str(QUIET)]
    assert rows[0]["devices"] == "1400"
    assert rows[0]["failure"].lstrip("'") == MISCHIEF
    assert len(rows_of(visit.see("/tenants.csv?show=not-collected"))) == 1


def test_many_who_watch_the_failures_ask_the_database_once(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    find = finding.find

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(options)
        return find(*arguments, **options)

    monkeypatch.setattr(finding, "find", counted)
    for _ in range(5):
        visit.see("/failures/live?errorClass=only-here")
    assert len(asked) < 5
    monkeypatch.undo()
