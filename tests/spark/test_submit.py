"""A job by spark-submit: what it is handed, that others plug in the same way, and that it ends with its run."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import dagster as dg
import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Role
from clientmgr.base.errors import ErrorKind, SettingsError
from clientmgr.base.settings import Settings, load_settings, sensitive_setting_names
from clientmgr.contact_deletions.bigquery import StoredResult
from clientmgr.contact_deletions.paging import CustomersRows
from clientmgr_dagster.spark.batch_jobs import JOBS, BatchJob, Order, order_for, result_of
from clientmgr_dagster.spark.deleted_contacts import store_page
from clientmgr_dagster.spark.job import SECRETS, settings_for
from clientmgr_dagster.spark.orphans import find_orphans
from clientmgr_dagster.spark.pipes import JobFailedError, run_by_pipes
from clientmgr_dagster.spark.submit import SparkSubmit, _run
from tests.keys import TEST_KEY
from tests.process_table import running, wait_until_gone, with_descendants
from tests.spark.tenants import ORDINARY, Tenants
from tests.waiting import eventually

NOW = datetime(2026, 11, 1, 3, 15, tzinfo=UTC)
LOGINS = {
    f"database_{role}_url": f"postgresql://{role}:Zf9-{role}@db.example/clientmgr"
    for role in ("ddl", "writer", "reader")
}
MAY_KNOW = {
    "orphans": {"DATABASE_READER_URL", "DATABASE_WRITER_URL"},
    "tenant_metrics": {"DATABASE_READER_URL", "DATABASE_WRITER_URL"},
    "deleted_contacts": {"DATABASE_WRITER_URL", "AUDIT_HASH_KEY"},
    "legacy_devices": {"DATABASE_WRITER_URL"},
    "contact_deletion_reconciliation": {"DATABASE_READER_URL", "DATABASE_WRITER_URL"},
}


def some_settings(**more: Any) -> Settings:
    return load_settings(**LOGINS, audit_hash_key=TEST_KEY, spark_run_by="submit", **more)


def test_each_job_is_handed_the_logins_of_its_roles_and_no_others() -> None:
    assert {job.name: set(job.secrets) for job in JOBS.values()} == MAY_KNOW


def test_a_call_and_its_result_come_through_as_they_were() -> None:
    page, customers = StoredResult("projects/p/datasets/d/tables/t", 7), [CustomerId(11), CustomerId(12)]
    order = order_for(store_page, some_settings(spark_partitions=3), (page, customers), {"run_id": "r"})
    result = [CustomersRows(CustomerId(11), 7, NOW, 42)]

    assert order.parameters == {
        "stored": {"path": page.path, "rows": 7},
        "customers": [11, 12],
        "run_id": "r",
    }
    assert order.settings["spark_partitions"] == 3
    plain = [{"customer_id": 11, "rows": 7, "deleted_at": NOW.isoformat(), "contact_id": 42}]
    assert result_of(store_page, plain) == result


def test_an_order_that_services_may_show_holds_no_secret() -> None:
    settings = some_settings(spark_conf={"spark.ssl.keyPassword": "Zf9-conf"})
    order = order_for(
        find_orphans,
        settings,
        ([ORDINARY],),
        {"orphaned_before": NOW, "threshold": timedelta(days=30), "found_at": NOW, "run_id": "r"},
    )

    assert "Zf9-" not in repr(order)
    assert TEST_KEY not in repr(order)


def test_a_job_reads_its_own_secrets_and_nothing_else_that_lies_there(tmp_path: Path) -> None:
    for name in ("DATABASE_READER_URL", "DATABASE_WRITER_URL", "DATABASE_DDL_URL"):
        (tmp_path / name).write_text(LOGINS[name.lower()])
        (tmp_path / name).chmod(0o600)
    order = Order("orphans", {}, {"spark_partitions": 3})

    settings = settings_for(order, {SECRETS: str(tmp_path)})

    assert (settings.database_reader_url, settings.database_ddl_url) == (LOGINS["database_reader_url"], "")
    assert settings.spark_partitions == 3
    (tmp_path / "DATABASE_READER_URL").chmod(0o644)
    with pytest.raises(SettingsError, match="others may read"):
        settings_for(order, {SECRETS: str(tmp_path)})


def test_a_login_that_is_missing_is_named_and_the_owner_s_never_takes_its_place() -> None:
    settings = load_settings(database_url="postgresql://owner:Zf9@db.example/clientmgr", spark_run_by="submit")
    with pytest.raises(SettingsError, match=r"^DATABASE_READER_URL: not set"):
        SparkSubmit(settings, {}).launch(cast(dg.OpExecutionContext, None), JOBS["orphans"], {})


def test_submit_and_connect_are_two_ways() -> None:
    with pytest.raises(SettingsError, match=r"^SPARK_CONNECT_URL: "):
        SparkSubmit(some_settings(spark_connect_url="sc://127.0.0.1:15002"), {})


PROGRAMS = {
    "result": "pipes.report_custom_message({'result': [{'customer_id': 11, 'rows': 7, "
    "'deleted_at': '2026-11-01T03:15:00Z', 'contact_id': 42}]})",
    "error": "pipes.report_custom_message({'error': 'no such table', 'kind': 'permanent'})",
    "nothing": "pass",
}


class ByDagstersOwnClient:
    """Another launcher, as a recipe has it: whatever client of Pipes a service has."""

    def __init__(self, program: str) -> None:
        self._program = f"import dagster_pipes\nwith dagster_pipes.open_dagster_pipes() as pipes:\n    {program}"

    def launch(
        self, context: dg.OpExecutionContext, job: BatchJob, extras: dict[str, Any]
    ) -> dg.PipesClientCompletedInvocation:
        command = [sys.executable, "-c", self._program]
        return dg.PipesSubprocessClient().run(context=context, command=command, extras=extras)


@pytest.mark.parametrize("program", PROGRAMS)
def test_any_client_of_pipes_can_run_a_job_of_an_asset_that_reports_by_itself(program: str) -> None:
    seen: list[object] = []

    @dg.asset(output_required=False)
    def quiet(context: dg.AssetExecutionContext) -> None:
        order = order_for(store_page, some_settings(), (StoredResult("t", 1), [ORDINARY]), {"run_id": "r"})
        try:
            seen.append(run_by_pipes(ByDagstersOwnClient(PROGRAMS[program]), context, store_page, order))
        except JobFailedError as error:
            seen.append((str(error), error.kind))

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([quiet], instance=instance, raise_on_error=False).success
    assert seen == [
        {
            "result": [CustomersRows(CustomerId(11), 7, NOW, 42)],
            "error": ("deleted_contacts: no such table", ErrorKind.PERMANENT),
            "nothing": ("deleted_contacts: ended without a result; its own output says more", ErrorKind.UNFORESEEN),
        }[program]
    ]


def test_a_job_whose_run_is_gone_ends_itself_and_its_group(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    program = (
        "import subprocess, sys, time; from clientmgr_dagster.spark.job import end_with_whoever_holds; "
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        "end_with_whoever_holds(sys.argv[1]); print(flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(lock)]
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(lock.open("w"))
        fcntl.flock(held, fcntl.LOCK_EX)
        job = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
        stack.callback(job.kill)
        assert job.stdout is not None
        job.stdout.readline()
        processes = with_descendants(job.pid)
        assert len(processes) == 2
        assert job.poll() is None
        # And not by closing it: a process that was forked meanwhile might still have it open.
        fcntl.flock(held, fcntl.LOCK_UN)
        assert job.wait(60) in (-signal.SIGTERM, -signal.SIGKILL)
    eventually(lambda: not running(processes), "the group ended")


def test_whatever_interrupts_a_run_ends_spark_submit_and_all_that_it_started(tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = "sleep 600 & echo $$ $! > starting; mv starting started; wait"
    processes: list[psutil.Process] = []

    def interrupt() -> None:
        eventually(started.exists, "it runs")
        processes.extend(psutil.Process(int(pid)) for pid in started.read_text().split())
        os.kill(os.getpid(), signal.SIGUSR2)

    # Not SIGINT: whatever runs the tests may ignore it.
    before = signal.signal(signal.SIGUSR2, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            _run(["sh", "-c", program], dict(os.environ), tmp_path)
        wait_until_gone(processes, within_s=10)
    finally:
        signal.signal(signal.SIGUSR2, before)
        for process in running(processes):
            process.kill()


WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


# The lock by which a killed run's job ends is tested above without Spark.
WITH_CLUSTERS = pytest.mark.skipif(not os.environ.get("CLUSTER_TESTS"), reason="`make test-cluster` runs this")


@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=WITH_CLUSTERS)])
def test_a_run_that_ends_takes_its_spark_job_with_it(how: signal.Signals, settings: Settings, tenants: Tenants) -> None:
    tenants.activate(ORDINARY)
    tenants.add_devices(ORDINARY, 200)
    conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    by_submit = settings.model_copy(
        update={
            "spark_run_by": "submit",
            "spark_master": "local[1]",
            "spark_conf": conf,
            "tenant_lock_timeout_ms": 600_000,
        }
    )
    with locked(tenants):
        run = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.every_job", NOW.isoformat(), str(ORDINARY)],
            env={**os.environ, **by_submit.environment()},
            stderr=subprocess.DEVNULL,
        )
        try:
            eventually(lambda: tenants.query(WAITING) == [(1,)], "a task that waits for the tenant", within_s=300)
            processes = with_descendants(run.pid)
            children = [process for process in running(processes) if process.pid != run.pid]
            assert len(children) >= 3, "a JVM, its Python, and Python's workers"
            assert shown_to_others(children, by_submit) == {}
            run.send_signal(how)
            run.wait(60)
            eventually(lambda: not running(processes), "all of it ended", within_s=60)
        finally:
            run.kill()
            run.wait()
    assert tenants.query("SELECT count(*) FROM clientmgr.orphan_candidates") == [(0,)]


@contextlib.contextmanager
def locked(tenants: Tenants) -> Iterator[None]:
    """Until the end of the `with` nobody can read the tenant."""
    with tenants.database.connect(Role.OWNER) as connection:
        connection.execute(f"LOCK TABLE {quoted_schema(ORDINARY)}.devices IN ACCESS EXCLUSIVE MODE")
        yield


def shown_to_others(processes: list[psutil.Process], settings: Settings) -> Mapping[str, list[str]]:
    """The secrets of ours in command lines, which all users see, and in environments, which executors inherit."""
    secrets = {
        name: value for name, value in settings.environment().items() if name in sensitive_setting_names() and value
    }
    assert secrets.keys() >= {"DATABASE_READER_URL", "DATABASE_DDL_URL", "AUDIT_HASH_KEY"}
    found = {}
    for process in running(processes):
        try:
            text = "\0".join((*process.cmdline(), *process.environ().values()))
        except psutil.NoSuchProcess:  # ended meanwhile, and perhaps still in the process table
            continue
        if names := [name for name, value in secrets.items() if value in text]:
            found[process.name()] = names
    return found
