"""Tenants: the table in any order, a tenant's past as a chart and as CSV, and whether its audit trail is untouched."""

import csv
import io
import re

import pytest

from clientmgr.base.database import Role
from clientmgr.tenant_metrics.tenants import SortColumn, TenantFilter, tenant_page
from clientmgr_dashboard.operations import audit
from tests.dashboard.house import BUSY, MISCHIEF, NIGHTS, QUIET, House, Visit


def listed(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'<th scope="row"><a href="/tenants/(\d+)">', page)]


def test_the_table_is_sorted_and_what_is_not_known_stands_last(visit: Visit) -> None:
    assert listed(visit.see("/tenants?sort=customerId&order=asc")) == [BUSY, QUIET]
    assert listed(visit.see("/tenants?sort=customerId&order=desc")) == [QUIET, BUSY]
    for order in ("asc", "desc"):
        assert listed(visit.see(f"/tenants?sort=devices&order={order}")) == [BUSY, QUIET]


@pytest.mark.parametrize("column", SortColumn.__args__)  # type: ignore[attr-defined]
def test_it_can_be_sorted_by_every_column(house: House, column: SortColumn) -> None:
    with house.database.connect(Role.READER) as connection:
        rows = tenant_page(connection, TenantFilter(0.01), sort=column, descending=True, limit=10, offset=0)
    assert len(rows) == 2


def test_tenants_are_found_by_the_beginning_of_their_id(visit: Visit) -> None:
    assert listed(visit.see("/tenants?search=1002")) == [QUIET]
    assert "No such tenant" in visit.see("/tenants?search=999")


def test_tenants_are_found_by_what_is_wrong_with_them(visit: Visit) -> None:
    assert listed(visit.see("/tenants?show=out-of-sync")) == [BUSY]
    assert listed(visit.see("/tenants?show=not-collected")) == [QUIET]
    assert listed(visit.see("/tenants?show=behind")) == []


def test_pages_follow_each_other(visit: Visit) -> None:
    first = visit.see("/tenants?perPage=1&sort=customerId&order=asc")
    assert "2 in all, page 1 of 2" in first
    assert f'href="/failures?customerId={BUSY}"' in visit.see(f"/tenants/{BUSY}")
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
    assert listed(visit.see("/tenants" + following.replace("&amp;", "&"))) == [QUIET]


def test_a_tenants_past_is_drawn(visit: Visit) -> None:
    page = visit.see(f"/tenants/{BUSY}")
    areas = re.findall(r'<polygon class="area series-\d" points="([^"]+)"', page)
    assert len(areas) == 3, "one for each platform"
    assert all(len(points.split()) == 2 * (NIGHTS + 1) for points in areas)
    assert "<title>Devices by platform</title>" in page
    assert page.count('<polyline class="line') == 4


def test_a_tenants_past_is_drawn_wherever_in_the_audit_trail_somebody_is(visit: Visit) -> None:
    page = visit.see(f"/tenants/{BUSY}?days=365&before=2")
    assert '<td class="num">1</td>' in page, "the first row of the trail"
    assert "No history yet" not in page
    assert len(re.findall(r'<polygon class="area', page)) == 3


def test_the_link_that_verifies_the_audit_trail_keeps_what_is_shown(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "VERIFIED_AT_ONCE", 0)
    assert 'href="?days=365&amp;verify=1#audit"' in visit.see(f"/tenants/{BUSY}?days=365")


def test_a_tenants_past_can_be_had_as_csv_without_formulas(visit: Visit) -> None:
    answer = visit.get(f"/tenants/{BUSY}/history.csv?days=365")
    assert answer.headers["content-disposition"] == f'attachment; filename="tenant-{BUSY}-history.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == NIGHTS + 1
    assert int(rows[0]["devices"]) < int(rows[-1]["devices"])
    assert rows[-1]["devices ios"] == str((1000 + 10 * NIGHTS) // 2)
    assert f"devices {MISCHIEF}" in rows[0]


def test_a_tenants_page_says_what_differs_from_dynamodb(visit: Visit) -> None:
    page = visit.see(f"/tenants/{BUSY}")
    assert "20.0% different" in page
    assert "not checked" in visit.see(f"/tenants/{QUIET}")


def test_a_tenants_page_leads_to_its_partition_in_dagster(visit: Visit, house: House) -> None:
    link = f"http://127.0.0.1:{house.settings.dagster_port}/assets/tenant_schema?view=partitions&amp;partition={BUSY}"
    assert f'href="{link}"' in visit.see(f"/tenants/{BUSY}")


def test_an_audit_trail_that_somebody_changed_is_shown_as_broken(visit: Visit, house: House) -> None:
    assert "rows are as they were written" in visit.see(f"/tenants/{QUIET}")
    change = "UPDATE clientmgr.audit_log SET outcome = 'forged' WHERE customer_id = %s AND seq = 1"
    restore = "UPDATE clientmgr.audit_log SET outcome = %s WHERE customer_id = %s AND seq = 1"
    (before,) = house.query("SELECT outcome FROM clientmgr.audit_log WHERE customer_id = %s AND seq = 1", QUIET)
    house.query("ALTER TABLE clientmgr.audit_log DISABLE TRIGGER audit_log_unchanged")
    house.query(change, QUIET)
    page = visit.see(f"/tenants/{QUIET}")
    house.query(restore, before[0], QUIET)
    house.query("ALTER TABLE clientmgr.audit_log ENABLE TRIGGER audit_log_unchanged")
    assert "row 1: row changed" in page
    assert '<span class="badge bad">changed</span>' in page
