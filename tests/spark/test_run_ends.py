"""What a run that ends leaves on a Spark that goes on without it: no job at work."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from clientmgr.base.settings import Settings
from clientmgr_dagster.spark.session import APPLICATION_TAG, SparkResource
from tests.waiting import eventually


def test_a_run_that_ends_cancels_its_jobs_and_names_the_application_that_had_them(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    at_work, hold = tmp_path / "at work", tmp_path / "hold"
    hold.touch()
    errors: list[str] = []

    def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at_work.touch()
        while hold.exists():
            time.sleep(0.05)
        yield from batches

    def work(resource: SparkResource) -> None:
        try:
            resource.spark_session.range(0, 1, 1, 1).mapInArrow(held, "id long").collect()
        except Exception as error:  # noqa: BLE001  # which one is Spark's affair
            errors.append(str(error))

    @dg.asset
    def interrupted(spark: SparkResource) -> None:
        job = threading.Thread(target=work, args=(spark,), daemon=True)
        job.start()
        eventually(at_work.exists, "the job is at work")

    try:
        with dg.DagsterInstance.ephemeral() as instance:
            result = dg.materialize([interrupted], instance=instance, resources={"spark": SparkResource()})
            (run,) = instance.get_runs()
        eventually(lambda: errors, "the job is cancelled", within_s=10)
    finally:
        hold.unlink()
    assert result.success
    assert "cancel" in errors[0].lower()
    assert run.tags[APPLICATION_TAG] == spark.sparkContext.applicationId
