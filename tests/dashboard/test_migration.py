"""The page of migrations: who is where, why it goes no further, and moves that the rules allow."""

from tests.dashboard.house import BUSY, House, Visit


def test_a_tenant_is_started_advanced_and_taken_back_from_its_page_and_audited(house: House, visit: Visit) -> None:
    page = visit.see(f"/migration?customerId={BUSY}")
    assert "it has left the legacy store already" in page
    assert 'value="start"' not in page, "one click must not take it back to the legacy store"
    refused = visit.submit("/migration", {"customerId": BUSY, "move": "start"})
    assert (refused.status_code, "`back` it first" in refused.text) == (409, True)
    # A customer of its own stage, whatever the house's flippers for all are.
    visit.submit("/migration", {"customerId": BUSY, "move": "back", "to": "importing"})
    page = visit.see(f"/migration?customerId={BUSY}&moved={BUSY}")
    assert "importing" in page
    assert "have not been imported and compared yet" in page

    refused = visit.submit("/migration", {"customerId": BUSY, "move": "advance"})
    assert refused.status_code == 409
    assert "stays at “importing”" in refused.text

    house.query(
        "INSERT INTO clientmgr.legacy_imports"
        " (customer_id, run_id, scanned_at, items, imported_at, checked_at, different)"
        " VALUES (%s, 'run', now(), 0, now(), now(), 0)",
        BUSY,
    )
    assert visit.submit("/migration", {"customerId": BUSY, "move": "advance"}).status_code == 303
    assert "may go on to postgres with fallback" in visit.see("/migration?stage=in+sync")
    visit.submit("/migration", {"customerId": BUSY, "move": "back", "to": "legacy"})
    assert f'href="/tenants/{BUSY}"' in visit.see("/migration?stage=legacy")
    outcomes = [outcome for _, _, outcome, _ in house.audited("migration.stage")]
    assert outcomes == ["importing", "in sync", "legacy"]
