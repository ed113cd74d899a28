"""A contact on the dashboard: erased, exported and proven by operators, never by viewers, and always audited."""

import json

import pytest

from clientmgr.audit.log import AuditLogger
from clientmgr.contracts import topics
from clientmgr.erasure.report import check
from tests.dashboard.house import BUSY, CONTACT, SECRET, House, Visit, hidden

WHOSE = {"customerId": BUSY, "contactId": CONTACT}


def test_a_contact_is_looked_up(visit: Visit) -> None:
    page = visit.see(f"/contacts?customerId={BUSY}&contactId={CONTACT}")
    assert f"What is known of contact {CONTACT}" in page
    assert "Erase the contact with its devices" in page
    assert "customer 999 was never activated" in visit.see("/contacts?customerId=999&contactId=1", status=404)
    assert "must be a whole number" in visit.see(f"/contacts?customerId={BUSY}&contactId=x", status=400)


def test_a_viewer_may_look_and_no_more(viewer: Visit, house: House) -> None:
    page = viewer.see(f"/contacts?customerId={BUSY}&contactId={CONTACT}")
    assert "Operators export, erase and prove." in page
    assert '<button class="danger"' not in page
    for path, fields in (
        ("/contacts/erase", {**WHOSE, "confirm": CONTACT}),
        ("/contacts/export", WHOSE),
        ("/contacts/prove", WHOSE),
        ("/contacts/proof-file", {"report": "e30="}),
    ):
        assert viewer.submit(path, fields).status_code == 403, path
    headers = {"X-CSRF-Token": viewer.get("/api/v1/session").json()["csrfToken"]}
    for name in ("erase", "export", "prove"):
        body = {**WHOSE, "confirm": CONTACT} if name == "erase" else WHOSE
        assert viewer.post(f"/api/v1/contacts/{name}", json=body, headers=headers).status_code == 403, name
    for action in ("contact.erase_requested", "contact.export", "contact.prove"):
        assert [row for row in house.audited(action) if row[1] == "dashboard:vera"] == []


def test_an_operator_exports_a_contact_with_tokens_only_when_asked(operator: Visit, house: House) -> None:
    answer = operator.submit("/contacts/export", WHOSE)
    assert answer.headers["content-disposition"] == f'attachment; filename="contact-{BUSY}-{CONTACT}.json"'
    assert answer.headers["cache-control"] == "no-store"
    assert SECRET not in answer.text
    assert "c1" in [device["client_id"] for device in answer.json()["devices"]]
    assert SECRET in operator.submit("/contacts/export", {**WHOSE, "reveal": "true"}).text
    assert [row[1:3] for row in house.audited("contact.export")][-2:] == [
        ("dashboard:otto", "started"),
        ("dashboard:otto", "done"),
    ]
    assert house.audited("contact.export")[-1][3] == {"tokens": True}


def test_an_operator_proves_what_is_left_and_downloads_the_signed_report(operator: Visit, house: House) -> None:
    answer = operator.submit("/contacts/prove", {**WHOSE, "search": SECRET})
    assert answer.status_code == 200, answer.text[-500:]
    page = answer.text
    assert f"What is left of contact {CONTACT}" in page
    assert f"tenant_{BUSY}.devices" in page
    assert SECRET not in page
    file = operator.submit("/contacts/proof-file", {"report": hidden(page)["report"][0]})
    report = check(file.text, house.settings)
    assert (report.outcome, report.made_by) == ("left", "dashboard:otto")
    assert house.audited("contact.prove")[-1][:3] == (BUSY, "dashboard:otto", "left")


@pytest.mark.parametrize("report", ["e30=", "%%%", "bm90IGpzb24="])
def test_only_our_own_reports_are_handed_out(operator: Visit, report: str) -> None:
    assert operator.submit("/contacts/proof-file", {"report": report}).status_code == 400


def test_erasing_wants_the_contacts_id_typed(operator: Visit, house: House) -> None:
    before = house.audited("contact.erase_requested")
    for confirm, status in (("", 400), (str(CONTACT + 1), 409), ("yes", 400)):
        assert operator.submit("/contacts/erase", {**WHOSE, "confirm": confirm}).status_code == status, confirm
    assert house.audited("contact.erase_requested") == before


def test_a_form_of_another_page_erases_nothing(operator: Visit, house: House) -> None:
    before = house.audited("contact.erase_requested")
    answer = operator.post("/contacts/erase", data={**WHOSE, "confirm": str(CONTACT)})
    assert answer.status_code == 403
    assert house.audited("contact.erase_requested") == before


def test_an_operator_erases_a_contact(operator: Visit, house: House) -> None:
    answer = operator.submit("/contacts/erase", {"customerId": BUSY, "contactId": 4711, "confirm": 4711})
    assert answer.headers["location"] == f"/contacts?customerId={BUSY}&contactId=4711&erasing=true"
    assert "The deletion is published." in operator.see(answer.headers["location"])
    rows = house.query(
        "SELECT m.payload FROM clientmgr.outbox_message_t AS m JOIN clientmgr.log_counter AS c ON c.id = m.topic_id"
        " WHERE c.topic = %s",
        topics.CONTACT_DELETION,
    )
    assert json.loads(rows[-1][0])["contactId"] == 4711
    ((actor, contact_hash),) = house.query(
        "SELECT actor, contact_hash FROM clientmgr.audit_log WHERE action = 'contact.erase_requested'"
        " ORDER BY seq DESC LIMIT 1"
    )
    audit = AuditLogger.from_settings(house.settings)
    assert (actor, contact_hash) == ("dashboard:otto", audit.contact_hash(BUSY, 4711))


def test_the_api_says_what_the_page_says(operator: Visit) -> None:
    known = operator.get(f"/api/v1/contacts/{BUSY}/{CONTACT}").json()
    assert known["devices"] >= 1
    headers = {"X-CSRF-Token": operator.get("/api/v1/session").json()["csrfToken"]}
    report = operator.post("/api/v1/contacts/prove", json=WHOSE, headers=headers).json()
    assert report["outcome"] == "left"
    exported = operator.post("/api/v1/contacts/export", json=WHOSE, headers=headers).json()
    assert exported["contactId"] == CONTACT


def test_a_contacts_devices_lead_to_the_contact(visit: Visit) -> None:
    page = visit.see(f"/devices?customerId={BUSY}&contactId={CONTACT}")
    assert f'href="/contacts?customerId={BUSY}&amp;contactId={CONTACT}"' in page
