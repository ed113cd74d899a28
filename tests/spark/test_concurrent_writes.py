"""Runs that write results of the same tenants at once: none fails, and the outcome is that of one after the other."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from clientmgr.base.arrays import text_array
from clientmgr.base.database import Database, Role
from clientmgr.base.sqlfiles import named_queries
from clientmgr.orphans.deletion import young_candidates
from clientmgr.tenant_metrics.collected_metrics import append_history
from clientmgr_dagster.spark.results_writer import Attempt, ResultsWriter, ResultWrite
from tests.spark.tenants import EMPTY, HUGE, ORDINARY, Tenants
from tests.waiting import eventually

CUSTOMERS = (ORDINARY, HUGE, EMPTY)
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
RUNS = range(4)
ROWS = 1000


def all_at_once(*work: Callable[[], None]) -> None:
    """Each in a thread of its own, begun together. The first failure is raised."""
    barrier = threading.Barrier(len(work))

    def begin(one: Callable[[], None]) -> None:
        barrier.wait(30)
        one()

    with ThreadPoolExecutor(len(work)) as executor:
        for done in [executor.submit(begin, one) for one in work]:
            done.result(60)


def commit(
    database: Database, target: str, run: int, rows: list[dict[str, Any]], **recorded: Any
) -> Callable[[], None]:
    """What is left of a run whose tasks have staged these rows: the commit."""
    write = ResultWrite(target, f"run-{run}", "step", CUSTOMERS, recorded)
    writer = ResultsWriter(database.conninfo(Role.WRITER), write)
    # Each run has the tenants and their keys in another order, as tasks do.
    attempt: Attempt = writer.write(iter([pa.RecordBatch.from_pylist(rows if run % 2 else rows[::-1])]))
    return lambda: writer.commit([attempt])


def orphans_of(run: int) -> list[dict[str, Any]]:
    return [
        {
            "customer_id": customer,
            "application_code": "A",
            # Two runs share half of what they find.
            "client_id": f"c{number + run * ROWS // 2}",
            "silent_since": MOMENT - timedelta(days=50 + run),
            "found_at": MOMENT,
        }
        for customer in CUSTOMERS
        for number in range(ROWS)
    ]


def test_searches_of_the_same_tenants_replace_each_other_whole(database: Database, tenants: Tenants) -> None:
    tenants.activate(*CUSTOMERS)
    for _ in range(3):
        commits = [
            commit(
                database,
                "orphan_candidates",
                run,
                orphans_of(run),
                searched_at=MOMENT.isoformat(),
                threshold_days=49.5 + run,
            )
            for run in RUNS
        ]
        all_at_once(*commits)

        found = tenants.query(
            "SELECT customer_id, silent_since, count(*) FROM clientmgr.orphan_candidates GROUP BY 1, 2 ORDER BY 1"
        )
        assert [(customer, count) for customer, _, count in found] == [(customer, ROWS) for customer in CUSTOMERS]
        assert len({silent_since for _, silent_since, _ in found}) == 1, "one run's results, not some of each"
        last = (MOMENT - found[0][1]).days - 50
        assert tenants.query("SELECT DISTINCT run_id, candidates FROM clientmgr.orphan_searches") == [
            (f"run-{last}", ROWS)
        ]
        with database.connect(Role.READER) as connection:
            assert young_candidates(connection) == {}, "a candidate is judged by the search that found it"
    assert tenants.query("SELECT count(*) FROM clientmgr.orphan_candidates_staged") == [(0,)]


def test_a_deletion_and_a_search_do_not_wait_for_each_other(database: Database, tenants: Tenants) -> None:
    tenants.activate(*CUSTOMERS)
    rows = [row for row in orphans_of(0) if row["customer_id"] == HUGE][:9]
    recorded = {"searched_at": MOMENT.isoformat(), "threshold_days": 49.5}
    commit(database, "orphan_candidates", 0, rows, **recorded)()  # the last key first, and so the rows stand
    names = [row["client_id"] for row in rows]
    keys = {"application_codes": text_array("A" for _ in names), "client_ids": text_array(names)}
    forget = named_queries("orphans/queries/orphans.sql")["forget_candidates"]
    search = commit(database, "orphan_candidates", 1, rows, **recorded)

    def delete() -> None:
        with database.connect(Role.WRITER) as connection:
            connection.execute(forget, {"customer_id": HUGE, **keys})

    def waiting() -> int:
        return int(tenants.query("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")[0][0])

    with database.connect(Role.OWNER) as somebody, ThreadPoolExecutor(2) as executor:
        # Both come as far as this row, from one side or from both.
        somebody.execute("SELECT FROM clientmgr.orphan_candidates WHERE client_id = %s FOR UPDATE", (names[4],))
        done = [executor.submit(search)]
        eventually(lambda: waiting() == 1, "the search waits for the row")
        done.append(executor.submit(delete))
        eventually(lambda: waiting() == 2, "and so does the deletion")
        somebody.rollback()
        for one in done:
            one.result(30)


def test_collections_of_the_same_tenants_leave_one_row_each(database: Database, tenants: Tenants) -> None:
    tenants.activate(*CUSTOMERS)

    def collection(run: int) -> Callable[[], None]:
        rows = [
            {
                "customer_id": customer,
                "collected_at": MOMENT + timedelta(seconds=run),
                "run_id": f"run-{run}",
                "status": "ok",
                "devices": run,
                "devices_by_platform": "{}",
                "devices_by_provider": "{}",
                "sync_status": "not checked",
            }
            for customer in CUSTOMERS
        ]
        move = commit(database, "dashboard_tenant_metrics", run, rows)

        def collect() -> None:
            move()
            with database.connect(Role.WRITER) as connection:
                append_history(connection, CUSTOMERS)

        return collect

    for _ in range(5):
        all_at_once(*(collection(run) for run in RUNS))
        rows = tenants.query("SELECT customer_id, run_id FROM clientmgr.dashboard_tenant_metrics ORDER BY 1")
        assert [customer for customer, _ in rows] == list(CUSTOMERS)
        assert len({run for _, run in rows}) == 1


@pytest.mark.parametrize("target", ["deleted_contacts", "unerased_contacts"])
def test_contacts_that_two_runs_found_are_there_once(database: Database, tenants: Tenants, target: str) -> None:
    tenants.activate(*CUSTOMERS)
    hashes = target == "deleted_contacts"
    rows = [
        {"customer_id": customer, "contact_id": contact, "deleted_at": MOMENT, "found_at": MOMENT}
        | ({"contact_hash": b"%d" % contact} if hashes else {})
        for customer in CUSTOMERS
        for contact in range(ROWS)
    ]
    for _ in range(3):
        all_at_once(*(commit(database, target, run, rows) for run in RUNS))
        tenants_rows = Counter(customer for (customer,) in tenants.query(f"SELECT customer_id FROM clientmgr.{target}"))
        assert tenants_rows == dict.fromkeys(CUSTOMERS, ROWS)
        tenants.query(f"DELETE FROM clientmgr.{target}")
