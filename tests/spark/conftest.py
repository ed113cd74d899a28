"""One Spark session for all tests, and tenants to read: an ordinary, a huge, an empty and a broken one."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from clientmgr.database import Database
from clientmgr.settings import Settings, load_settings
from clientmgr_dagster.spark.session import start_session
from tests.spark.tenants import Tenants

EVENT_LOG = "spark-events"


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
    before = dict(os.environ)
    session = start_session(settings)
    yield session
    session.stop()
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
        os.environ.pop(name, None)
        if name in before:
            os.environ[name] = before[name]


@pytest.fixture(scope="session")
def event_log(spark: SparkSession) -> Path:
    return Path(f"{spark.conf.get('spark.eventLog.dir')}".removeprefix("file://"))


@pytest.fixture
def settings(database: Database, settings_for: Callable[[Database], Settings]) -> Settings:
    return settings_for(database).model_copy(update={"spark_partitions": 2, "tenant_lock_timeout_ms": 300})


@pytest.fixture
def tenants(database: Database, settings: Settings) -> Tenants:
    return Tenants(database, settings)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def kept_instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """On disk: a schedule's context opens the instance anew."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance
