"""Deleting orphans: only what still is one, in batches, audited; a tenant that fails costs only itself."""

from dataclasses import replace
from typing import Any

import pytest
from psycopg import Connection

from clientmgr.audit.log import AuditLogger, read_log
from clientmgr.base.database import Role
from clientmgr.orphans.deletion import OrphanDeletion, OrphanResult, young_candidates
from clientmgr.orphans.exclusions import exclude, include
from clientmgr.orphans.policy import Outcome
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.devices.histories import HASHES
from tests.orphans.rig import ONE, POLICY, TWO, Rig


def test_orphans_are_deleted_in_batches_with_tombstones_and_audited(rig: Rig) -> None:
    rig.fill(ONE)

    (result,) = rig.run(ONE)

    assert result == OrphanResult(ONE, Outcome.DELETED, candidates=10, deleted=10, devices=20)
    assert rig.clients(ONE) == {f"c{n}" for n in range(11, 21)}
    assert rig.query('SELECT device_hash, deleted_version FROM "tenant_1".device_tombstones ORDER BY 2') == [
        (HASHES.device(ONE, "A", f"c{n}"), 1000 + n) for n in range(1, 11)
    ]
    with rig.database.connect(Role.READER) as connection:
        records = list(read_log(connection, customer_id=ONE, action="orphans.delete", oldest_first=True))
    assert [record.rows_affected for record in records] == [4, 4, 2]
    assert rig.query("SELECT count(*) FROM clientmgr.orphan_candidates") == [(0,)]
    assert rig.query("SELECT outcome, candidates, deleted, spared FROM clientmgr.orphan_deletion_results") == [
        ("deleted", 10, 10, 0)
    ]


def test_stopped_it_ends_before_the_next_batch_and_the_audit_log_says_what_is_left(rig: Rig) -> None:
    rig.fill(ONE)
    looks = iter([True, True, True])

    (result,) = rig.run(ONE, still_wanted=lambda: next(looks, False))

    assert result == OrphanResult(ONE, Outcome.STOPPED, candidates=10, deleted=8, devices=20)
    with rig.database.connect(Role.READER) as connection:
        records = list(read_log(connection, customer_id=ONE, action="orphans.delete", oldest_first=True))
    assert [(record.outcome, record.rows_affected) for record in records] == [
        ("deleted", 4),
        ("deleted", 4),
        ("stopped", 0),
    ]
    assert records[-1].details == {"run_id": "r", "deleted_before": 8, "left": 2}
    assert rig.query("SELECT outcome, deleted FROM clientmgr.orphan_deletion_results") == [("stopped", 8)]
    rig.run(ONE)
    assert len(rig.clients(ONE)) == 10, "another run deletes the rest"


def test_who_is_no_orphan_any_more_is_spared(rig: Rig) -> None:
    rig.fill(ONE)
    rig.query("""UPDATE "tenant_1".devices SET contact_id = 5, orphaned_since = NULL WHERE client_id = 'c1'""")
    rig.query("""UPDATE "tenant_1".devices SET orphaned_since = now() WHERE client_id = 'c2'""")
    rig.query("""DELETE FROM "tenant_1".devices WHERE client_id = 'c3'""")

    (result,) = rig.run(ONE)

    assert (result.deleted, result.spared) == (7, 3)
    assert {"c1", "c2"} <= rig.clients(ONE)


def test_running_again_deletes_and_audits_nothing_more(rig: Rig) -> None:
    rig.fill(ONE)
    rig.run(ONE)

    (again,) = rig.run(ONE, run_id="again")

    assert (again.outcome, again.deleted) == (Outcome.DELETED, 0)
    assert rig.query("SELECT sum(rows_affected) FROM clientmgr.audit_log WHERE action = 'orphans.delete'") == [(10,)]


def test_a_dry_run_tells_and_deletes_nothing(rig: Rig) -> None:
    rig.fill(ONE)
    rig.query("""UPDATE "tenant_1".devices SET orphaned_since = now() WHERE client_id = 'c2'""")

    (result,) = rig.run(ONE, policy=replace(POLICY, dry_run=True))

    assert (result.outcome, result.deleted, result.spared) == (Outcome.DRY_RUN, 9, 1)
    assert len(rig.clients(ONE)) == 20
    assert rig.query("SELECT outcome, deleted FROM clientmgr.orphan_deletion_results") == [("dry run", 0)]


def test_an_excluded_customer_is_left_alone(rig: Rig) -> None:
    rig.fill(ONE)

    (result,) = rig.run(ONE, policy=replace(POLICY, excluded=frozenset({ONE})))

    assert result.outcome is Outcome.EXCLUDED
    assert len(rig.clients(ONE)) == 20


def test_a_customer_that_somebody_excluded_while_the_system_runs_is_left_alone_until_they_change_their_mind(
    rig: Rig,
) -> None:
    rig.fill(ONE)
    audit = AuditLogger.from_settings(rig.settings)
    with rig.database.connect(Role.WRITER) as connection:
        assert exclude(connection, audit, ONE, reason="moving", actor="test")
        assert not exclude(connection, audit, ONE, reason="moving", actor="test")
    assert [result.outcome for result in rig.run(ONE)] == [Outcome.EXCLUDED]
    assert len(rig.clients(ONE)) == 20
    with rig.database.connect(Role.WRITER) as connection:
        assert include(connection, audit, ONE, actor="test")
    assert [result.deleted for result in rig.run(ONE, run_id="later")] == [10]


def test_a_tenant_that_would_lose_too_much_is_left_alone_and_the_others_are_not(rig: Rig) -> None:
    rig.fill(ONE, devices=10, orphans=10)
    rig.fill(TWO)

    guarded, other = rig.run(ONE, TWO)

    assert (guarded.outcome, guarded.candidates, guarded.devices) == (Outcome.GUARDED, 10, 10)
    assert len(rig.clients(ONE)) == 10
    assert other.outcome is Outcome.DELETED


def test_a_tenant_nobody_looked_at_is_said_to_be_so(rig: Rig) -> None:
    (result,) = rig.run(ONE)

    assert result.outcome is Outcome.NOT_SEARCHED


def test_a_locked_tenant_is_tried_again_reported_and_costs_the_others_nothing(rig: Rig) -> None:
    rig.fill(ONE)
    rig.fill(TWO)
    with rig.database.connect(Role.OWNER) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(-1)")

        locked, other = rig.run(ONE, TWO)

    assert (locked.outcome, locked.attempts) == (Outcome.FAILED, 3)
    assert "lock timeout" in str(locked.error)
    assert other.deleted == 10
    assert len(rig.query("SELECT error FROM clientmgr.orphan_deletion_results WHERE outcome = 'failed'")) == 1

    (later,) = rig.run(ONE)
    assert later.deleted == 10
    assert rig.query(
        "SELECT outcome, deleted, attempts FROM clientmgr.orphan_deletion_results WHERE customer_id = 1"
    ) == [("deleted", 10, 4)]


def test_a_lost_connection_is_an_attempt_and_the_next_one_has_its_own(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.fill(ONE)
    batches = iter([False, True])
    original = OrphanDeletion._delete_batch

    def cut_off_in_the_second_batch(
        self: OrphanDeletion, connection: Connection[Any], *arguments: Any
    ) -> Outcome | None:
        if next(batches, False):
            rig.query(f"SELECT pg_terminate_backend({connection.info.backend_pid}, 10000)")
        return original(self, connection, *arguments)

    monkeypatch.setattr(OrphanDeletion, "_delete_batch", cut_off_in_the_second_batch)

    (result,) = rig.run(ONE)

    assert (result.outcome, result.attempts, result.deleted) == (Outcome.DELETED, 2, 10)


def test_a_deleted_tenant_is_a_failure_that_is_not_tried_again(rig: Rig) -> None:
    TenantSchemaManager(rig.database, rig.settings).delete(ONE, actor="test")

    (result,) = rig.run(ONE)

    assert (result.outcome, result.attempts) == (Outcome.FAILED, 1)
    assert "deleted" in str(result.error)


def test_killed_between_two_batches_it_goes_on_where_it_was(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.fill(ONE)
    batches = iter([True, True, False])
    original = OrphanDeletion._delete_batch

    def dying(self: OrphanDeletion, *arguments: Any) -> Outcome | None:
        if not next(batches):
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(OrphanDeletion, "_delete_batch", dying)
    with pytest.raises(KeyboardInterrupt):
        rig.run(ONE)
    monkeypatch.undo()
    assert len(rig.clients(ONE)) == 12

    (result,) = rig.run(ONE)

    assert result.deleted == 2
    assert rig.query("SELECT sum(rows_affected) FROM clientmgr.audit_log WHERE action = 'orphans.delete'") == [(10,)]


def test_a_candidate_that_was_too_young_when_it_was_found_is_noticed(rig: Rig) -> None:
    rig.fill(ONE)
    with rig.database.connect(Role.READER) as connection:
        assert young_candidates(connection) == {}
    rig.query(
        "UPDATE clientmgr.orphan_candidates SET silent_since = found_at - interval '29 days' WHERE client_id = 'c1'"
    )

    with rig.database.connect(Role.READER) as connection:
        assert young_candidates(connection) == {ONE: 1}


def test_no_tenants_is_no_work(rig: Rig) -> None:
    assert rig.run() == []
