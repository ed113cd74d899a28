"""One Spark session for all tests, and tenants to read: an ordinary, a huge, an empty and a broken one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings, load_settings
from clientmgr.local.standins.bigquery import BigQueryStandIn
from clientmgr.local.standins.dynamodb import CREDENTIALS, DynamoDbStandIn
from clientmgr.local.standins.server import standins_are_installed
from clientmgr_dagster.spark.session import start_session
from tests.spark.deletions import COLUMNS, TABLE
from tests.spark.tenants import Tenants

EVENT_LOG = "spark-events"
AWS_SECRET = "a-secret-that-nobody-is-to-read"
AWS = {**CREDENTIALS, "AWS_SECRET_ACCESS_KEY": AWS_SECRET}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A JVM takes seconds to start: everybody shares this one. It writes the log that Spark's UI is made from."""
    folder = tmp_path_factory.mktemp("spark")
    events = folder / EVENT_LOG
    events.mkdir()
    settings = load_settings(
        data_dir=folder,
        spark_master="local[2]",
        spark_partitions=2,
        spark_conf={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
        },
    )
    with pytest.MonkeyPatch.context() as environment:
        # What Python's workers have in their environment is what the JVM had when it started.
        for name, value in AWS.items():
            environment.setenv(name, value)
        session = start_session(settings)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def event_log(spark: SparkSession) -> Path:
    return Path(f"{spark.conf.get('spark.eventLog.dir')}".removeprefix("file://"))


@pytest.fixture
def settings(database: Database, settings_for: Callable[[Database], Settings]) -> Settings:
    return settings_for(database).model_copy(update={"spark_partitions": 2, "tenant_lock_timeout_ms": 300})


@pytest.fixture
def tenants(database: Database, settings: Settings) -> Tenants:
    made = Tenants(database, settings)
    made.leave_the_legacy_store()
    return made


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def kept_instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """On disk: a schedule's context opens the instance anew."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


def need_stand_ins() -> None:
    if not standins_are_installed():
        pytest.skip("the stand-ins for BigQuery and DynamoDB are not installed: `make standins` does that")


@pytest.fixture(scope="session")
def bigquery_stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BigQueryStandIn]:
    need_stand_ins()
    server = BigQueryStandIn(tmp_path_factory.mktemp("bigquery"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def bigquery(
    bigquery_stand_in: BigQueryStandIn, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> BigQueryStandIn:
    """The table of deleted contacts, empty, and the environment that assets read."""
    bigquery_stand_in.execute(f"CREATE OR REPLACE TABLE {TABLE} ({COLUMNS})")
    overrides: dict[str, Any] = {**bigquery_stand_in.settings, "contact_deletion_page_size": 400}
    for name, value in settings.model_copy(update=overrides).environment().items():
        monkeypatch.setenv(name, value)
    return bigquery_stand_in


@pytest.fixture(scope="session")
def dynamodb_stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDbStandIn]:
    """Each test makes a table of its own."""
    need_stand_ins()
    server = DynamoDbStandIn(tmp_path_factory.mktemp("dynamodb"))
    server.start()
    yield server
    server.stop()
