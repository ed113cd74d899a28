"""What operators do, by forms: flip and exclude, look devices up and reveal them."""

import re
from urllib.parse import quote

import pytest

from clientmgr_dashboard.operations import devices
from tests.dashboard.house import BUSY, CONTACT, MISCHIEF, QUIET, SECRET, House, Visit, serving
from tests.streaming.rig import event


def visible(page: str) -> str:
    """Without what a form offers to choose."""
    return re.sub(r"<option.*?</option>", "", page)


def test_flippers_are_set_for_one_tenant_and_unset_again(house: House, visit: Visit) -> None:
    form = {"name": "USE_POSTGRES_DEVICE_MAPPER", "customerId": QUIET}
    assert "done=changed" in visit.submit("/switches/flippers", {**form, "state": "off"}).headers["location"]
    assert "done=unchanged" in visit.submit("/switches/flippers", {**form, "state": "off"}).headers["location"]
    assert f'<a href="/tenants/{QUIET}">{QUIET}</a>' in visit.see("/switches")
    visit.submit("/switches/flippers", {**form, "state": "unset"})
    assert [row[:3] for row in house.audited("flipper.set") if row[0] == QUIET] == [(QUIET, "dashboard:local", "off")]
    assert house.audited("flipper.unset")[-1][0] == QUIET


def test_what_is_set_for_all_is_shown_however_many_tenants_have_a_setting_of_their_own(spare_house: House) -> None:
    spare_house.query(
        "INSERT INTO clientmgr.tenants (customer_id, status)"
        " SELECT n, 'activating' FROM generate_series(2001, 2600) AS n"
    )
    spare_house.query(
        "INSERT INTO clientmgr.flippers (name, customer_id, enabled, updated_by)"
        " SELECT 'CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER', n, false, 'test'"
        " FROM generate_series(2001, 2600) AS n"
    )
    spare_house.query(
        "INSERT INTO clientmgr.orphan_exclusions (customer_id, reason, updated_by)"
        " SELECT n, 'many', 'test' FROM generate_series(2001, 2600) AS n"
    )
    with serving(spare_house.settings) as address, Visit(base_url=address) as visit:
        first = visit.see("/switches")
        assert "not set" not in visible(first)
        assert first.count('class="card switch"') == 2
        assert "601 set by tenant, page 1 of 13" in first
        assert "601 in all, page 1 of 13" in first
        last = visit.see("/switches?page=13&exclusionsPage=12")
        assert "not set" not in visible(last)
        assert 'href="/tenants/1001">1001</a></th>' in last, "OLD_ONE, the last by name"
        assert 'rel="next" href="?page=13&amp;exclusionsPage=13"' in last
        found = visit.see("/switches?customerId=2600")
        assert "1 set by tenant</span>" in found
        assert "1 in all</span>" in found
        assert 'value="2600"' in found


def test_a_flipper_for_a_customer_that_there_is_not_is_refused(visit: Visit) -> None:
    form = {"name": "USE_POSTGRES_DEVICE_MAPPER", "customerId": 404, "state": "on"}
    assert visit.submit("/switches/flippers", form).status_code == 404


def test_an_application_is_configured_changed_and_forgotten(house: House, visit: Visit) -> None:
    form = {"customerId": QUIET, "applicationCode": "APP"}
    wanted = {**form, "appleTopic": "com.acme.app", "webOrigins": "https://b.acme.com  https://a.acme.com"}
    assert "done=changed" in visit.submit("/applications/configure", wanted).headers["location"]
    assert "done=unchanged" in visit.submit("/applications/configure", wanted).headers["location"]
    edited = visit.see(f"/applications?customerId={QUIET}&applicationCode=APP")
    assert 'value="com.acme.app"' in edited
    assert 'value="https://a.acme.com https://b.acme.com"' in edited
    visit.submit("/applications/configure", {**form, "defaultLanguage": "de"})
    (row,) = house.query("SELECT apple_topic, web_origins, default_language FROM clientmgr.applications"
                         " WHERE customer_id = %s", QUIET)  # fmt: skip
    assert row == (None, [], "de")
    visit.submit("/applications/remove", form)
    assert f'<a href="/tenants/{QUIET}">' not in visit.see("/applications")
    assert house.audited("application.set")[-1][:2] == (QUIET, "dashboard:local")
    assert house.audited("application.removed")[-1][0] == QUIET


def test_a_configuration_that_can_not_be_is_refused_by_field(visit: Visit) -> None:
    form = {"customerId": QUIET, "applicationCode": "APP"}
    answer = visit.submit("/applications/configure", {**form, "webOrigins": "http://acme.com"})
    assert (answer.status_code, "webOrigins" in answer.text) == (400, True)
    assert visit.submit("/applications/configure", {**form, "customerId": 404, "appleTopic": "a"}).status_code == 404


def test_a_tenants_orphans_are_kept_and_then_deleted_again(house: House, visit: Visit) -> None:
    visit.submit("/switches/exclusions", {"customerId": BUSY, "reason": "they are moving"})
    assert "they are moving" in visit.see("/switches")
    assert "orphans kept" in visit.see(f"/tenants/{BUSY}")
    assert house.audited("orphans.exclude")[-1] == (BUSY, "dashboard:local", "excluded", {"reason": "they are moving"})
    visit.submit("/switches/exclusions/remove", {"customerId": BUSY})
    assert "orphans kept" not in visit.see(f"/tenants/{BUSY}")
    assert house.audited("orphans.include")[-1][0] == BUSY


def test_a_tenant_still_read_from_the_legacy_store_is_shown_to_have_no_orphans(house: House, visit: Visit) -> None:
    flippers = ("USE_POSTGRES_DEVICE_MAPPER", "CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER")
    for state, is_left_out in (("on", False), ("off", True)):
        for name in flippers:
            visit.submit("/switches/flippers", {"name": name, "customerId": BUSY, "state": state})
        assert ("left out: still read from the legacy store" in visit.see(f"/tenants/{BUSY}")) is is_left_out
    for name in flippers:
        visit.submit("/switches/flippers", {"name": name, "customerId": BUSY, "state": "unset"})


@pytest.mark.parametrize(("by", "wanted"), [("contact", str(CONTACT)), ("client", "c1"), ("token", SECRET)])
def test_a_device_is_found_by_contact_client_id_or_token(visit: Visit, by: str, wanted: str) -> None:
    answer = visit.submit("/devices", {"customerId": BUSY, "by": by, "wanted": wanted}, follow_redirects=True)
    assert answer.status_code == 200
    assert "clientId=c1" in answer.text
    assert SECRET not in str(answer.url), "a token belongs in no address"


@pytest.mark.parametrize("wanted", [SECRET, "0", "-1", str(2**63)])
def test_what_is_no_contact_gets_into_no_address(visit: Visit, wanted: str) -> None:
    answer = visit.submit("/devices", {"customerId": BUSY, "by": "contact", "wanted": wanted})
    assert answer.status_code == 400
    assert "location" not in answer.headers
    assert SECRET not in answer.text


def test_many_devices_are_shown_page_by_page_and_counted_up_to_a_limit(
    spare_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    spare_house.publish_and_write(
        *(event("contactLinked", customer=QUIET, client=f"many-{n:03}", contactId=77) for n in range(121))
    )
    contact = f"/devices?customerId={QUIET}&contactId=77"
    with serving(spare_house.settings) as address, Visit(base_url=address) as visit:
        first = visit.see(contact)
        assert "121 in all, page 1 of 3" in first
        assert "many-049" in first
        assert "many-050" not in first
        (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
        assert "many-050" in visit.see("/devices" + following.replace("&amp;", "&"))
        monkeypatch.setattr(devices, "MOST_DEVICES", 120)
        cut = visit.see(contact)
        assert "at least 120 in all, page 1 of 3" in cut
        assert visit.get(f"/api/v1/devices/by-contact?customerId={QUIET}&contactId=77").json()["isAtLeast"] is True


def test_a_device_is_shown_with_when_each_part_was_set_and_its_token_masked(house: House, visit: Visit) -> None:
    page = visit.see(f"/devices/one?customerId={BUSY}&applicationCode=A&clientId=c1")
    assert SECRET not in page
    assert "token-…6789" in page
    assert "2025-11-15 23:06:40 UTC" in page, "the event's own time"
    assert not [row for row in house.audited("device.reveal") if row[1] == "dashboard:nobody"]


def test_a_token_is_revealed_to_who_asks_and_that_is_audited(house: House, visit: Visit) -> None:
    before = len(house.audited("device.reveal"))
    form = {"customerId": BUSY, "applicationCode": "A", "clientId": "c1"}
    assert SECRET in visit.submit("/devices/reveal", form).text
    revealed = house.audited("device.reveal")
    assert len(revealed) == before + 1
    assert revealed[-1][:2] == (BUSY, "dashboard:local")


def test_the_page_says_what_the_mapper_would_do(visit: Visit) -> None:
    page = visit.see(f"/devices/one?customerId={BUSY}&applicationCode=A&clientId=c1&channel=push")
    assert "SENT" in page
    assert "sending-batch-push-apple-dg00" in page
    assert "language fr" in page
    odd = quote(MISCHIEF, safe="")
    page = visit.see(f"/devices/one?customerId={BUSY}&applicationCode={odd}&clientId={odd}&channel=push")
    assert "MISSING_PUSH_TOKEN" in page
