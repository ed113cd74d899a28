"""The demo runs the nightly jobs once, on stand-ins for BigQuery and DynamoDB that it fills first.

They run beside the demo once it is up, so that nobody waits for them. A store that is configured is used as it is.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

from clientmgr.base.database import Database
from clientmgr.base.errors import ClientManagerError
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.broker.factory import open_broker
from clientmgr.contracts import topics
from clientmgr.local.demo.scenario import BUSY, DEMO_CUSTOMERS, QUIET
from clientmgr.local.demo.story import event
from clientmgr.local.embedded.server import free_port
from clientmgr.local.processes.dagster_runs import ENDED, RANGE_END, RANGE_START, DagsterRuns
from clientmgr.local.standins.bigquery import BigQueryStandIn
from clientmgr.local.standins.demo_stores import LegacyMirror, fill_deleted_contacts
from clientmgr.local.standins.dynamodb import CREDENTIALS, DynamoDbStandIn
from clientmgr.local.standins.server import StandIn, standins_are_installed
from clientmgr.operations.dagster_addresses import ui_url

log = get_logger(__name__)

JOBS: Final = (
    "contact_deletion_job",
    "orphan_deletion_job",
    "contact_deletion_reconciliation_job",
    "dashboard_job",
    "audit_verification_job",
)
"""In the order of their schedules; the dashboard's counts what the others left."""
FOR_ALL_TOGETHER: Final = frozenset({"audit_verification_job"})
"""Those that have no partition for each tenant."""
WITH_DEVICES: Final = (BUSY, QUIET)
FORGOTTEN_DEVICES: Final = 12
FORGOTTEN_FOR_MS: Final = 40 * 86_400_000
OWN_DEFAULTS: Final = {
    # A Python process each: more than a handful of devices is worth.
    "spark_partitions": 2,
    # The older system has missed 3% of the sample, for ever: something to look at, and nothing to act on.
    "sync_tolerance": 0.05,
    # Its jobs run once. With its workers it takes 0.9 GB, and is back within seconds.
    "spark_shared_idle_s": 60.0,
}
LOOK_EVERY_S: Final = 2.0
RUN_WITHIN_S: Final = 900.0


class NightlyJobsOnce:
    """`settings` name the stand-ins from the start; `begin` starts them, the end of the `with` stops them."""

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        self._stop = stop
        self._thread: threading.Thread | None = None
        self._mirror: LegacyMirror | None = None
        self._bigquery: BigQueryStandIn | None = None
        self._dynamodb: DynamoDbStandIn | None = None
        own = {name: value for name, value in OWN_DEFAULTS.items() if name not in settings.model_fields_set}
        self.settings = settings.model_copy(update=own)
        if not standins_are_installed():
            log.warning("no stand-ins for BigQuery and DynamoDB: `make standins` installs them")
            return
        folder = settings.data_dir / "standins"
        # On ports that are chosen now, because programs that start before them are told where they will be.
        if not settings.bigquery_project:
            self._bigquery = BigQueryStandIn(folder / "bigquery", port=free_port(), storage_port=free_port())
        if not settings.dynamodb_endpoint and settings.legacy_store != "none":
            self._dynamodb = DynamoDbStandIn(folder / "dynamodb", port=free_port())
        addresses = {name: value for server in self._servers() for name, value in server.settings.items()}
        self.settings = self.settings.model_copy(update=addresses)

    @property
    def environment(self) -> Mapping[str, str]:
        """What programs need in their environment besides the settings: AWS's client wants credentials of some kind."""
        return CREDENTIALS if self._dynamodb is not None else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        # Twice: one that is just being started gives up the wait for it, and may have been started since.
        for _ in range(2):
            for server in self._servers():
                server.stop()
            if self._thread is not None:
                self._thread.join()

    def start_legacy_store(self) -> None:
        """Before anybody looks for it, which the device mappers do as they start."""
        if self._dynamodb is None:
            return
        try:
            self._dynamodb.start()
            self._dynamodb.create_devices_table(self.settings.dynamodb_devices_table)
        except (ClientManagerError, OSError) as error:
            log.warning("the demo has no legacy store", error=str(error))

    def begin(self, ready: Settings) -> None:
        """Do all of it in a thread of its own."""
        self._thread = threading.Thread(target=self._run, args=(ready,), name="nightly-jobs")
        self._thread.start()

    def _run(self, settings: Settings) -> None:
        try:
            self._prepare(settings)
            self._work(settings)
            while not self._stop.is_set():
                self._pause()
        except Exception as error:  # noqa: BLE001  # whatever it is, the demo goes on without it
            if not self._stop.is_set():
                log.warning("the demo's nightly jobs are not complete", error=str(error))

    def _prepare(self, settings: Settings) -> None:
        database = Database.from_settings(settings)
        log.info("nightly jobs: preparing", stand_ins=[server.name for server in self._servers()])
        asyncio.run(_publish_forgotten_devices(settings, database))
        if self._dynamodb is not None:
            self._mirror = LegacyMirror(self._dynamodb, settings.dynamodb_devices_table, database, WITH_DEVICES)
            log.info("DynamoDB stand-in: devices copied", devices=self._mirror.refresh())
        if self._bigquery is not None:
            self._bigquery.start()
            table = settings.bigquery_deleted_contacts_table
            filled = fill_deleted_contacts(self._bigquery, table, database, WITH_DEVICES)
            log.info("BigQuery stand-in: contacts deleted", contacts=sum(filled.values()))

    def _work(self, settings: Settings) -> None:
        runs = DagsterRuns(settings, "demo")
        demo = {str(customer) for customer in DEMO_CUSTOMERS}
        self._wait_until(lambda: demo <= set(runs.partitions("tenant_schema")), "Dagster knows the tenants")
        keys = runs.partitions("tenant_schema")
        for job in JOBS:
            if self._stop.is_set():
                return
            if job.startswith("contact_deletion") and not settings.bigquery_project:
                log.info("nightly jobs: left out, there is no BigQuery", job=job)
                continue
            # On a busy machine Dagster may give a run up before it has begun: let it try again.
            tags = {"dagster/max_retries": "2"}
            if job not in FOR_ALL_TOGETHER:
                tags |= {RANGE_START: keys[0], RANGE_END: keys[-1]}
            started = time.monotonic()
            run_id = runs.launch(job, tags)
            log.info("nightly jobs: started", job=job, see=f"{ui_url(settings)}/runs/{run_id}")
            self._wait_until(lambda run_id=run_id: runs.status(run_id) in ENDED, f"{job} ends")  # type: ignore[misc]
            if not self._stop.is_set():
                outcome = runs.status(run_id).lower()
                log.info("nightly jobs: ended", job=job, outcome=outcome, seconds=round(time.monotonic() - started))
        if not self._stop.is_set():
            log.info("nightly jobs: all have ended")

    def _wait_until(self, look: Callable[[], bool], what: str) -> None:
        """Also until we are told to stop."""
        deadline = time.monotonic() + RUN_WITHIN_S
        while not self._stop.is_set():
            # A webserver that is starting, or being restarted, answers later.
            with contextlib.suppress(OSError):
                if look():
                    return
            if time.monotonic() > deadline:
                raise ClientManagerError(f"not within {RUN_WITHIN_S:.0f} s: {what}")
            self._pause()

    def _pause(self) -> None:
        self._stop.wait(LOOK_EVERY_S)
        if self._mirror is not None and not self._stop.is_set():
            self._mirror.refresh()

    def _servers(self) -> list[StandIn]:
        return [server for server in (self._dynamodb, self._bigquery) if server is not None]


async def _publish_forgotten_devices(settings: Settings, database: Database) -> None:
    """Devices that lost their contact long ago, for orphan deletion to find. New ones at each start."""
    now = time.time_ns() // 1_000_000
    lost = now - FORGOTTEN_FOR_MS
    messages = []
    for number in range(FORGOTTEN_DEVICES):
        client = f"forgotten-{now}-{number}"
        phone = {"platform": "android", "language": "en", "pushEnabled": True}
        messages += [
            event(BUSY, client, "registered", lost - 1, application="DEMO-APP", **phone),
            event(BUSY, client, "contactUnlinked", lost, application="DEMO-APP"),
        ]
    async with open_broker(settings, database) as broker:
        await broker.ensure_topic(topics.WRITER)
        await broker.publish(topics.WRITER, messages)
