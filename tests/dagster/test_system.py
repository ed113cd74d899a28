"""Dagster as `up` runs it: code server, daemon, webserver, our dagster.yaml; killed, and looked at in a browser."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import ClientManagerError
from clientmgr.base.migrations import ensure_database_grants
from clientmgr.base.settings import Settings, load_settings
from clientmgr.contracts.topics import ACCOUNT_DELETION, ACTIVATE_CUSTOMER
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.local.embedded.server import free_port
from clientmgr.local.processes.dagster_runs import ENDED, DagsterRuns
from clientmgr.local.processes.programs import dagster_programs
from clientmgr.local.processes.system import running, wait_for_ui
from clientmgr.operations.dagster_addresses import ui_url
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.browser import HOW_TO_GET_IT, Browser, browsing, find_chromium
from tests.conftest import _throwaway_database
from tests.dagster.rig import activation, deletion, publish
from tests.keys import TEST_KEY
from tests.process_table import mentioning, wait_until_gone, with_descendants
from tests.waiting import eventually

MATERIALISATIONS = """
SELECT partition, count(*) FROM dagster.event_logs
WHERE dagster_event_type = 'ASSET_MATERIALIZATION' AND asset_key = '["tenant_schema"]' GROUP BY partition
"""

LEAVING = 5


class System:
    """Dagster's programs on a database of their own."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database = database
        self.settings = settings
        self.code_server, self.daemon, self.webserver = dagster_programs(
            settings, {**os.environ, **settings.environment()}
        )

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self.database.connect(Role.OWNER, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()

    def statuses(self) -> dict[int, str]:
        return dict(self.query("SELECT customer_id, status FROM clientmgr.tenants"))

    def materialisations(self) -> dict[str, int]:
        return dict(self.query(MATERIALISATIONS))

    def kill(self) -> None:
        """The daemon, the code server and whatever run they have in hand: at once and without a word."""
        programs = [*mentioning("clientmgr_dagster.daemon"), *mentioning("clientmgr_dagster.code_server")]
        ours = [program for program in programs if self.is_ours(program)]
        victims = {victim for process in ours for victim in with_descendants(process.pid)}
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        wait_until_gone(victims)
        self.daemon.stop()
        self.code_server.stop()

    def is_ours(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return str(process.environ().get("DAGSTER_HOME", "")).startswith(str(self.settings.data_dir))
        return False


@pytest.fixture(scope="module")
def system(
    postgres_server: EmbeddedPostgres, _template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """With the daemon running; before it was started, messages asked for three customers, and for one to be deleted."""
    for database in _throwaway_database(postgres_server, _template):
        with database.connect(Role.OWNER) as connection:
            ensure_database_grants(connection)
        folder = tmp_path_factory.mktemp("system")
        settings = load_settings(
            database_url=database.url,
            data_dir=folder,
            audit_hash_key=TEST_KEY,
            dagster_port=free_port(),
            **postgres_server.role_settings(database.url.rpartition("/")[2]),
        )
        TenantSchemaManager(database, settings).activate([LEAVING], actor="test")
        publish(database, settings, ACTIVATE_CUSTOMER, *(activation(customer, 1000) for customer in (7, 8, 9)))
        publish(database, settings, ACCOUNT_DELETION, deletion(LEAVING, time.time_ns() // 1_000_000 + 1000))
        system = System(database, settings)
        with running([system.code_server, system.daemon]):
            yield system


def test_killed_in_mid_work_dagster_finishes_all_that_messages_ask_for_after_its_restart(system: System) -> None:
    eventually(lambda: 7 in system.statuses(), "the sensor has registered the customers")
    system.kill()
    system.daemon.start()
    system.code_server.start()

    eventually(lambda: system.materialisations().keys() >= {"7", "8", "9"}, "all are materialised", within_s=200)
    eventually(lambda: system.statuses()[LEAVING] == "deleted", "the account is deleted", within_s=60)

    assert system.statuses() == {LEAVING: "deleted", 7: "active", 8: "active", 9: "active"}
    created = system.query("SELECT customer_id FROM clientmgr.audit_log WHERE outcome = 'created' ORDER BY 1")
    assert created == [(LEAVING,), (7,), (8,), (9,)], "each once"
    daemons = [process for process in mentioning("clientmgr_dagster.daemon") if system.is_ours(process)]
    started = [process for daemon in daemons for process in with_descendants(daemon.pid)]
    assert not mentioning("grpc", among=started), "it has no code server of its own"
    partitions = "SELECT partition FROM dagster.dynamic_partitions ORDER BY 1"
    eventually(lambda: system.query(partitions) == [("7",), ("8",), ("9",)], "only who is active has a partition")


@pytest.fixture(scope="module")
def ui(system: System) -> Iterator[str]:
    """The URL of the webserver, which answers."""
    with running([system.webserver]):
        assert wait_for_ui(system.settings, threading.Event())
        yield ui_url(system.settings)


def test_a_run_is_started_and_followed_from_outside_as_the_demo_does_it(system: System, ui: str) -> None:
    runs = DagsterRuns(system.settings, "test")
    eventually(lambda: set(runs.partitions("tenant_schema")) == {"7", "8", "9"}, "the webserver knows the partitions")

    run_id = runs.launch("prune_event_log", {"asked-by": "test"})

    eventually(lambda: runs.status(run_id) in ENDED, "the run ends", within_s=120)
    assert runs.status(run_id) == "SUCCESS"
    assert system.query(f"SELECT value FROM dagster.run_tags WHERE run_id = '{run_id}' AND key = 'asked-by'")
    with pytest.raises(ClientManagerError, match="Dagster does not start no_such_job"):
        runs.launch("no_such_job", {})


@pytest.fixture
def browser(ui: str, tmp_path: Path) -> Iterator[Browser]:
    if find_chromium() is None:
        pytest.skip(HOW_TO_GET_IT)
    with browsing(tmp_path) as browser:
        yield browser
        # For whoever wonders why a test failed.
        browser.screenshot(tmp_path / "page.png")


def test_in_the_browser_the_lineage_is_to_be_seen_and_a_partition_is_materialised(
    system: System, browser: Browser
) -> None:
    browser.open(f"{ui_url(system.settings)}/locations/client_manager/asset-groups/tenancy/lineage")
    browser.wait_for("tenant_schema", "tenant_reconciliation", within_s=120)
    before = system.materialisations().get("7", 0)

    browser.open(f"{ui_url(system.settings)}/assets/tenant_schema?view=partitions&partition=7")
    browser.click("Materialize")
    browser.click("Launch")

    eventually(lambda: system.materialisations().get("7", 0) > before, "it is materialised once more", within_s=120)
