"""What drifts is found, repaired as somebody asked for it, and told; data that nobody disowned is never touched."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.base.stopping import StoppedError
from clientmgr.contracts.lifecycle import TenantRequest
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants.account_deletion import Step
from clientmgr.tenants.reconciliation import DriftKind, Reconciler
from clientmgr.tenants.schema_manager import TenantSchemaManager

Query = Callable[..., list[tuple[Any, ...]]]

EXCLUSION = "INSERT INTO clientmgr.orphan_exclusions (customer_id, reason, updated_by) VALUES (7, 'x', 'test')"


@pytest.fixture
def reconciler(database: Database, settings: Settings) -> Reconciler:
    return Reconciler(database, settings, actor="reconciler")


def age(query: Query) -> None:
    """As if nothing had happened for a day."""
    for table in ("tenants", "tenant_wishes"):
        query(f"UPDATE clientmgr.{table} SET updated_at = updated_at - interval '1 day'")


def kinds(reconciler: Reconciler) -> list[tuple[str, int]]:
    return [(drift.kind, drift.customer_id) for drift in reconciler.find()]


def statuses(query: Query) -> dict[int, str]:
    return dict(query("SELECT customer_id, status FROM clientmgr.tenants"))


def schemas(query: Query) -> set[str]:
    return {row[0] for row in query("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tenant\\_%%'")}


def test_where_all_agrees_nothing_is_found(manager: TenantSchemaManager, reconciler: Reconciler, query: Query) -> None:
    manager.activate([1, 2], actor="test")
    manager.delete(2, actor="test")
    manager.delete(3, actor="test")
    query('CREATE SCHEMA "tenant_007"')
    age(query)
    assert reconciler.find() == []


@pytest.mark.parametrize(
    ("status", "kind", "afterwards"),
    [
        ("deleting", DriftKind.UNFINISHED_DELETION, "deleted"),
        ("activating", DriftKind.UNFINISHED_ACTIVATION, "active"),
    ],
)
def test_what_was_left_half_way_is_finished_once_nobody_can_be_at_it_any_more(
    reconciler: Reconciler, query: Query, status: str, kind: DriftKind, afterwards: str
) -> None:
    query("INSERT INTO clientmgr.tenants (customer_id, status) VALUES (7, %s)", status)
    assert reconciler.find() == []
    age(query)
    assert kinds(reconciler) == [(kind, 7)]

    assert all(repair.repaired for repair in reconciler.repair(reconciler.find()))

    assert statuses(query) == {7: afterwards}
    assert schemas(query) == ({"tenant_7"} if afterwards == "active" else set())
    assert reconciler.find() == []


def test_a_customer_who_was_wanted_back_during_its_deletion_comes_back_empty(
    manager: TenantSchemaManager, reconciler: Reconciler, query: Query
) -> None:
    manager.activate([7], actor="test")
    query("INSERT INTO \"tenant_7\".devices (application_code, client_id) VALUES ('A', 'old')")

    def want_back(step: Step) -> None:
        if step is Step.DROPPED:
            manager.register([TenantRequest(CustomerId(7), "message", datetime.now(UTC))])

    manager.delete(7, actor="test", on_step=want_back)
    assert kinds(reconciler) == [(DriftKind.ACTIVATION_NOT_BEGUN, 7)]

    reconciler.repair(reconciler.find())

    assert statuses(query) == {7: "active"}
    assert query('SELECT count(*) FROM "tenant_7".devices') == [(0,)]


def test_a_customer_who_was_wanted_back_while_its_deletion_was_stuck_comes_back(
    manager: TenantSchemaManager, reconciler: Reconciler, query: Query
) -> None:
    """To finish the deletion is not to ask for it again: what was asked last stands."""
    manager.activate([7], actor="test")
    query("UPDATE clientmgr.tenants SET status = 'deleting'")
    query("UPDATE clientmgr.tenant_wishes SET wish = 'deleted', asked_at = now() - interval '1 hour'")
    manager.register([TenantRequest(CustomerId(7), "message", datetime.now(UTC))])
    age(query)
    assert kinds(reconciler) == [(DriftKind.UNFINISHED_DELETION, 7)]

    reconciler.repair(reconciler.find())
    assert kinds(reconciler) == [(DriftKind.ACTIVATION_NOT_BEGUN, 7)]
    reconciler.repair(reconciler.find())

    assert statuses(query) == {7: "active"}
    assert query("SELECT wish FROM clientmgr.tenant_wishes") == [("active",)]


def test_a_deletion_that_never_began_is_done(
    manager: TenantSchemaManager, reconciler: Reconciler, query: Query
) -> None:
    manager.activate([7], actor="test")
    manager.note_deletions([TenantRequest(CustomerId(7), "legal", datetime.now(UTC))])
    assert reconciler.find() == [], "its run may be about to begin"
    age(query)
    assert kinds(reconciler) == [(DriftKind.DELETION_NOT_BEGUN, 7)]
    reconciler.repair(reconciler.find())
    assert statuses(query) == {7: "deleted"}


def test_what_was_asked_for_since_the_drift_was_found_is_never_undone(
    manager: TenantSchemaManager, reconciler: Reconciler, query: Query
) -> None:
    manager.activate([7], actor="test")
    manager.note_deletions([TenantRequest(CustomerId(7), "legal", datetime.now(UTC))])
    age(query)
    found = reconciler.find()
    manager.activate([7], actor="person")

    (repair,) = reconciler.repair(found)

    assert (repair.repaired, repair.outcome) == (True, "superseded")
    assert statuses(query) == {7: "active"}


def test_an_active_tenant_without_a_schema_gets_an_empty_one(
    manager: TenantSchemaManager, reconciler: Reconciler, query: Query
) -> None:
    manager.activate([7], actor="test")
    query('DROP SCHEMA "tenant_7" CASCADE')
    assert kinds(reconciler) == [(DriftKind.SCHEMA_MISSING, 7)]

    reconciler.repair(reconciler.find())

    assert query('SELECT count(*) FROM "tenant_7".devices') == [(0,)]
    assert query("SELECT actor, outcome FROM clientmgr.audit_log ORDER BY seq DESC LIMIT 1") == [
        ("reconciler", "created")
    ]
    assert reconciler.find() == []


def test_the_schema_of_a_deleted_customer_goes_with_all_that_is_in_it(
    manager: TenantSchemaManager, reconciler: Reconciler, query: Query
) -> None:
    manager.delete(7, actor="test")
    query('CREATE SCHEMA "tenant_7" AUTHORIZATION clientmgr_ddl')
    query('CREATE TABLE "tenant_7".devices AS SELECT 1 AS x')
    query('ALTER TABLE "tenant_7".devices OWNER TO clientmgr_ddl')
    assert kinds(reconciler) == [(DriftKind.SCHEMA_OF_DELETED, 7)]

    reconciler.repair(reconciler.find())

    assert schemas(query) == set()
    outcomes = query("SELECT outcome, rows_affected FROM clientmgr.audit_log WHERE actor = 'reconciler' ORDER BY seq")
    assert outcomes == [("intended", None), ("dropped", 1), ("completed", None)]


def test_a_schema_of_nobody_goes_when_it_is_empty_and_is_reported_when_it_is_not(
    reconciler: Reconciler, query: Query
) -> None:
    for customer, devices in ((7, 0), (8, 3)):
        query(f'CREATE SCHEMA "tenant_{customer}" AUTHORIZATION clientmgr_ddl')
        query(f'CREATE TABLE "tenant_{customer}".devices AS SELECT n FROM generate_series(1, {devices}) AS n')
        query(f'ALTER TABLE "tenant_{customer}".devices OWNER TO clientmgr_ddl')

    empty, full = reconciler.repair(reconciler.find())

    assert (empty.drift.customer_id, empty.repaired) == (7, True)
    assert (full.drift.customer_id, full.repaired) == (8, False)
    assert "3 devices" in full.outcome
    assert schemas(query) == {"tenant_8"}


def test_rows_that_somebody_wrote_late_for_a_deleted_customer_go(
    database: Database, manager: TenantSchemaManager, reconciler: Reconciler, query: Query
) -> None:
    query("DROP TABLE IF EXISTS clientmgr.batch_failures")
    query("CREATE TABLE clientmgr.batch_failures (customer_id bigint)")
    migrate_database(database)
    manager.activate([7, 8], actor="test")
    manager.delete(7, actor="test")
    query("INSERT INTO clientmgr.batch_failures VALUES (7), (8), (9)")
    assert kinds(reconciler) == [(DriftKind.ROWS_OF_DELETED, 7)]

    reconciler.repair(reconciler.find())

    assert query("SELECT customer_id FROM clientmgr.batch_failures ORDER BY 1") == [(8,), (9,)]


def test_rows_of_a_customer_who_came_back_since_they_were_found_stay(
    manager: TenantSchemaManager, reconciler: Reconciler, query: Query
) -> None:
    manager.activate([7], actor="test")
    manager.delete(7, actor="test")
    query(EXCLUSION)
    found = reconciler.find()
    manager.activate([7], actor="person")

    (repair,) = reconciler.repair(found)

    assert (repair.drift.kind, repair.outcome) == (DriftKind.ROWS_OF_DELETED, "superseded")
    assert query("SELECT customer_id FROM clientmgr.orphan_exclusions") == [(7,)]


def test_rows_of_a_customer_whose_deletion_is_still_to_come_are_left_to_it(
    manager: TenantSchemaManager, reconciler: Reconciler, query: Query
) -> None:
    manager.activate([7], actor="test")
    query(EXCLUSION)
    manager.note_deletions([TenantRequest(CustomerId(7), "legal", datetime.now(UTC))])

    assert reconciler.find() == []


def test_a_repair_that_fails_is_told_and_stops_no_other(
    manager: TenantSchemaManager, reconciler: Reconciler, query: Query
) -> None:
    query('CREATE SCHEMA "tenant_7"')
    query("INSERT INTO clientmgr.tenants (customer_id, status) VALUES (7, 'activating'), (8, 'activating')")
    age(query)

    seven, eight = reconciler.repair(reconciler.find())

    assert (seven.repaired, eight.repaired) == (False, True)
    assert "already exists" in seven.outcome


def test_stopped_it_begins_no_further_repair(
    database: Database, settings: Settings, manager: TenantSchemaManager, query: Query
) -> None:
    manager.activate([1, 2], actor="test")
    query("UPDATE clientmgr.tenants SET status = 'deleting'")
    age(query)
    # One look for the repair, and three within the deletion.
    looks = iter([True] * 4)
    reconciler = Reconciler(database, settings, actor="reconciler", still_wanted=lambda: next(looks, False))

    with pytest.raises(StoppedError, match="1 of 2 repairs are done"):
        reconciler.repair(reconciler.find())

    assert statuses(query) == {1: "deleted", 2: "deleting"}
    assert schemas(query) == {"tenant_2"}
