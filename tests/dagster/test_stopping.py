"""Stop means stop, and no zombies: runs that are terminated, killed or frozen in mid-work, and what they did."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg
import msgspec
import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest
from dagster._core.launcher.base import WorkerStatus

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.base.migrations import ensure_database_grants
from clientmgr.base.settings import load_settings
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.orphans.deletion import record_searches
from clientmgr.tenants.flippers import Flipper, set_flipper
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.defs.operations import lost_starts
from clientmgr_dagster.runs.launcher import WatchedRunLauncher
from clientmgr_dagster.runs.worker import RunLock, Worker, this_worker
from tests.conftest import _throwaway_database
from tests.dagster.yard import Yard
from tests.keys import TEST_KEY
from tests.orphans.rig import DEVICES, FIND, POLICY
from tests.process_table import mentioning, wait_until_gone, with_descendants
from tests.waiting import eventually

DEVICES_IN_ALL, ORPHANS = 100, 50
AT, BEFORE = "c30", 23
"""The device at whose deletion a run waits, and how many come before it: batches go by client id."""

WAITING = """
SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE NOT granted AND datname = current_database()
"""


@pytest.fixture(scope="module")
def yard(postgres_server: EmbeddedPostgres, _template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    for database in _throwaway_database(postgres_server, _template):
        with database.connect(Role.OWNER) as connection:
            ensure_database_grants(connection)
        folder = tmp_path_factory.mktemp("yard")
        settings = load_settings(
            database_url=database.url,
            data_dir=folder,
            audit_hash_key=TEST_KEY,
            orphan_batch_size=1,
            orphan_attempts=1,
            tenant_lock_timeout_ms=120_000,
            **postgres_server.role_settings(database.url.rpartition("/")[2]),
        )
        TenantSchemaManager(database, settings).activate(range(1, 7), actor="test")
        with database.connect(Role.WRITER) as connection:
            for flipper in Flipper:
                audit = AuditLogger.from_settings(settings)
                set_flipper(connection, audit, flipper, None, enabled=True, actor="test")
        with Yard(database, settings, folder).opened() as yard:
            yard.instance.add_dynamic_partitions("tenants", [str(number) for number in range(1, 7)])
            yield yard


@contextmanager
def deleting(yard: Yard, customer: int, **tags: str) -> Iterator["Deletion"]:
    """A run that deletes the customer's orphans one by one and waits at the one that somebody else is at work on."""
    yard.query(DEVICES.format(customer=customer, devices=DEVICES_IN_ALL, orphans=ORPHANS))
    yard.query(FIND.format(customer=customer))
    with yard.database.connect(Role.WRITER) as connection:
        record_searches(
            connection, [CustomerId(customer)], searched_at=datetime.now(UTC), policy=POLICY, run_id="search"
        )
    with yard.database.connect(Role.OWNER) as somebody:
        somebody.execute(f"SELECT FROM \"tenant_{customer}\".devices WHERE client_id = '{AT}' FOR UPDATE".encode())
        run_id = yard.launch(customer, **tags)
        yard.dequeue()
        processes = with_descendants(yard.process_of(run_id).pid)
        eventually(lambda: yard.query(WAITING) == [(1,)], "the deletion waits for the device that is held")
        deletion = Deletion(yard, customer, run_id, processes, release=somebody.rollback)
        assert deletion.deleted() == BEFORE
        yield deletion


@dataclass
class Deletion:
    """The run, in mid-work."""

    yard: Yard
    customer: int
    run_id: str
    processes: list[psutil.Process]
    release: Callable[[], None]
    """Lets it go on with the device that it waits for."""

    def deleted(self) -> int:
        ((left,),) = self.yard.query(f'SELECT count(*) FROM "tenant_{self.customer}".devices')
        return DEVICES_IN_ALL - int(left)

    def audited(self) -> dict[str, int]:
        """How many rows there are of each outcome."""
        count = "SELECT outcome, count(*) FROM clientmgr.audit_log WHERE action = 'orphans.delete'"
        return dict(self.yard.query(f"{count} AND customer_id = {self.customer} GROUP BY outcome"))

    def ends_as(self, status: str) -> None:
        eventually(lambda: self.yard.status(self.run_id) == status, f"the run is {status}")
        wait_until_gone(self.processes)
        assert self.yard.status(self.run_id) == status, "and stays so"


def test_a_terminated_run_ends_with_the_batch_it_is_at_says_so_and_is_not_tried_again(yard: Yard) -> None:
    with deleting(yard, 1, max_retries="3") as deletion:
        assert yard.terminate(deletion.run_id) == "TerminateRunSuccess"
        eventually(lambda: yard.status(deletion.run_id) == "CANCELING", "Dagster has been told")
        tags = yard.instance.get_runs(dg.RunsFilter(run_ids=[deletion.run_id]))[0].tags
        assert tags["dagster/max_retries"] == "0", "not even if its process dies before it has ended"
        # The interrupt reaches the main thread, which waits for the batch under way.
        deletion.release()
        deletion.ends_as("CANCELED")

    assert deletion.deleted() == BEFORE + 1
    assert deletion.audited() == {"deleted": BEFORE + 1, "stopped": 1}
    details = "SELECT details FROM clientmgr.audit_log WHERE customer_id = 1 AND outcome = 'stopped'"
    ((stop,),) = yard.query(details)
    assert (stop["run_id"], stop["deleted_before"], stop["left"]) == (deletion.run_id, BEFORE + 1, ORPHANS - BEFORE - 1)
    results = "SELECT outcome, deleted FROM clientmgr.orphan_deletion_results WHERE customer_id = 1"
    assert yard.query(results) == [("stopped", BEFORE + 1)]
    assert yard.retry(deletion.run_id) is None


def test_a_run_marked_as_canceled_at_once_does_nothing_more_even_if_it_hangs(yard: Yard) -> None:
    with deleting(yard, 2) as deletion:
        assert yard.terminate(deletion.run_id, "MARK_AS_CANCELED_IMMEDIATELY") == "TerminateRunSuccess"
        # Nobody lets it go on: its process ends all the same, and the batch under way is rolled back.
        deletion.ends_as("CANCELED")

    assert deletion.deleted() == BEFORE
    assert deletion.audited() == {"deleted": BEFORE}


def test_a_run_is_terminated_without_its_code_server_too(yard: Yard) -> None:
    with deleting(yard, 3) as deletion:
        yard.kill_code_server()
        try:
            assert yard.terminate(deletion.run_id) == "TerminateRunSuccess"
            eventually(lambda: yard.status(deletion.run_id) == "CANCELING", "Dagster has been told")
            deletion.release()
            deletion.ends_as("CANCELED")
        finally:
            yard.start_code_server()

    assert deletion.deleted() == BEFORE + 1
    assert deletion.audited() == {"deleted": BEFORE + 1, "stopped": 1}


def test_a_run_without_a_process_is_failed_frees_its_pool_and_is_started_again_but_a_frozen_one_is_left_alone(
    yard: Yard,
) -> None:
    with deleting(yard, 4, max_retries="1") as deletion:
        waiting = yard.launch(5)
        yard.dequeue()
        assert yard.status(waiting) == "QUEUED", "the pool has one place"
        deletion.processes[0].suspend()
        yard.monitor()
        assert yard.status(deletion.run_id) == "STARTED", "frozen is not gone"
        yard.kill_code_server()
        for process in deletion.processes:
            process.kill()
        wait_until_gone(deletion.processes)
    assert yard.status(deletion.run_id) == "STARTED", "nobody was left to say that it ended"

    yard.monitor()

    assert yard.status(deletion.run_id) == "FAILURE"
    assert deletion.deleted() == BEFORE
    yard.start_code_server()
    again = yard.retry(deletion.run_id)
    assert again is not None
    assert yard.run_to_its_end(waiting), "nobody holds the pool any more"
    assert yard.run_to_its_end(again) == "SUCCESS"
    assert deletion.deleted() == ORPHANS
    assert deletion.audited() == {"deleted": ORPHANS}, "each once"


def test_a_run_that_was_lost_while_it_started_is_failed_and_does_nothing_if_it_starts_after_all(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_starts, "LOST_AFTER", timedelta(0))
    with deleting(yard, 6) as deletion:
        # Only now: the pool has one place, and a run that starts has it.
        late = yard.launch(1)
        before_it = Worker(pid=1, started=1, process_table=this_worker().process_table)
        yard.instance.add_run_tags(late, before_it.to_tags())  # as a run that is tried again has them
        yard.report_starting(late)
        yard.report_starting(deletion.run_id)
        yard.fail_lost_starts()
        assert yard.status(deletion.run_id) == "STARTING", "its code server has its process"
        assert yard.status(late) == "FAILURE", "nobody asked a code server to start it"

        yard.start(late)
        assert yard.worker_of(late) != before_it, "it is not taken for the process that is gone"
        eventually(lambda: yard.status(late) == "CANCELED", "it ends before its first step", within_s=120)

        yard.kill_code_server()
        for process in deletion.processes:
            process.kill()
        wait_until_gone(deletion.processes)
        yard.fail_lost_starts()
        assert yard.status(deletion.run_id) == "STARTING", "nobody can tell"
        yard.start_code_server()
        yard.fail_lost_starts()
        assert yard.status(deletion.run_id) == "FAILURE"
    assert deletion.deleted() == BEFORE


@pytest.mark.timeout(600)  # Spark starts slowly on a busy machine
def test_a_terminated_search_leaves_no_spark_behind_and_no_candidates(yard: Yard) -> None:
    yard.query(DEVICES.format(customer=5, devices=DEVICES_IN_ALL, orphans=ORPHANS))
    with yard.database.connect(Role.OWNER) as somebody:
        somebody.execute('LOCK TABLE "tenant_5".devices IN ACCESS EXCLUSIVE MODE')
        run_id = yard.launch(5, asset="orphan_candidates")
        yard.dequeue()
        process = yard.process_of(run_id)
        workers = eventually(
            lambda: mentioning("pyspark.daemon", among=with_descendants(process.pid)), "Spark is at work", within_s=200
        )
        processes = {*with_descendants(process.pid), *workers}
        assert mentioning("java", among=processes)
        yard.terminate(run_id)
        # Nobody lets it have the table.
        Deletion(yard, 5, run_id, list(processes), release=somebody.rollback).ends_as("CANCELED")

    assert yard.query("SELECT count(*) FROM clientmgr.orphan_candidates WHERE customer_id = 5") == [(0,)]


@pytest.fixture
def launcher(yard: Yard) -> WatchedRunLauncher:
    """One that has no patience with runs on other machines."""
    launcher = WatchedRunLauncher(lost_after_seconds=0)
    launcher.register_instance(yard.instance)
    return launcher


def health(launcher: WatchedRunLauncher, worker: Worker | None) -> WorkerStatus:
    run = dg.DagsterRun(job_name="x", run_id="one", tags={} if worker is None else worker.to_tags())
    return launcher.check_run_worker_health(run).status


def test_a_process_that_got_the_pid_of_a_dead_run_is_not_taken_for_it(launcher: WatchedRunLauncher) -> None:
    this = this_worker()

    assert health(launcher, this) is WorkerStatus.RUNNING
    assert health(launcher, msgspec.structs.replace(this, started=this.started - 1)) is WorkerStatus.FAILED


def test_a_run_on_another_machine_lives_as_long_as_it_holds_its_lock(yard: Yard, launcher: WatchedRunLauncher) -> None:
    elsewhere = Worker(pid=1, started=1, process_table="another kernel")
    lock = RunLock(yard.instance, "one")
    lock.keep()
    assert health(launcher, elsewhere) is WorkerStatus.RUNNING

    # The database restarts: every connection is lost, and the process comes back.
    yard.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'run_worker'")
    patient = yard.instance.run_launcher
    assert isinstance(patient, WatchedRunLauncher)
    assert health(patient, elsewhere) is WorkerStatus.RUNNING, "for so long it may be away"
    lock.keep()
    lock.keep()
    assert health(launcher, elsewhere) is WorkerStatus.RUNNING

    lock.release()
    eventually(lambda: health(launcher, elsewhere) is WorkerStatus.FAILED, "the server has closed the connection")


def test_a_lock_that_a_lost_connection_still_holds_is_taken_when_that_is_gone(yard: Yard) -> None:
    lost, lock = RunLock(yard.instance, "one"), RunLock(yard.instance, "one")
    lost.keep()
    lock.keep()
    lost.release()
    eventually(lambda: not lock.is_held(), "the server has closed the connection")

    lock.keep()

    assert lock.is_held()
    lock.release()


def test_of_a_run_that_noted_no_process_nothing_is_concluded_without_its_code_server(
    launcher: WatchedRunLauncher,
) -> None:
    assert health(launcher, None) is WorkerStatus.RUNNING
