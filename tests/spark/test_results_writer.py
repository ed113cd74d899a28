"""Writing results with Spark: all or nothing, once, whatever happens to the tasks."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.operations.batch_failures import failures_of
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.spark.results_writer import LostRowsError, ResultsWriter, ResultWrite, write_results
from tests.spark.tenants import BROKEN, EMPTY, HUGE, ORDINARY, Tenants

SCHEMA = "customer_id bigint, application_code string, client_id string, silent_since timestamp, found_at timestamp"


def write_for(*customers: int, run_id: str = "run") -> ResultWrite:
    recorded = {"searched_at": "2026-01-01T00:00:00+00:00", "threshold_days": 30}
    return ResultWrite("orphan_candidates", run_id, "step", tuple(customers), recorded)


def rows_for(spark: SparkSession, *customers: int, each: int = 3, named: str = "c") -> DataFrame:
    return (
        spark.range(0, len(customers) * each, 1, 4)
        .select(
            F.element_at(F.lit(list(map(int, customers))), (F.col("id") % len(customers) + 1).cast("int")).alias(
                "customer_id"
            ),
            F.lit("A").alias("application_code"),
            F.concat(F.lit(named), (F.col("id") / len(customers)).cast("int")).alias("client_id"),
            F.current_timestamp().alias("silent_since"),
            F.current_timestamp().alias("found_at"),
        )
        .to(spark.createDataFrame([], SCHEMA).schema)
    )


def candidates(tenants: Tenants) -> list[tuple[int, str]]:
    return tenants.query("SELECT customer_id, client_id FROM clientmgr.orphan_candidates ORDER BY 1, 2")


def staged(tenants: Tenants) -> int:
    count: int = tenants.query("SELECT count(*) FROM clientmgr.orphan_candidates_staged")[0][0]
    return count


def test_a_write_replaces_what_its_customers_had_and_nobody_elses(
    spark: SparkSession, database: Database, tenants: Tenants
) -> None:
    conninfo = database.conninfo(Role.WRITER)
    write_results(rows_for(spark, ORDINARY, HUGE, named="old"), conninfo, write_for(ORDINARY, HUGE))

    for _ in range(2):
        write_results(rows_for(spark, ORDINARY, each=2, named="new"), conninfo, write_for(ORDINARY, EMPTY))

    assert candidates(tenants) == [
        (ORDINARY, "new0"),
        (ORDINARY, "new1"),
        *((HUGE, f"old{number}") for number in range(3)),
    ]
    assert staged(tenants) == 0


def test_a_task_that_dies_half_way_and_is_tried_again_writes_its_rows_once(
    spark: SparkSession, database: Database, tenants: Tenants, tmp_path: Path
) -> None:
    rows = rows_for(spark, ORDINARY, each=40).repartition(4)

    def die_once(batches):  # type: ignore[no-untyped-def]
        # The last partition's worker is gone after it has staged something; Spark gives up the job.
        yield from batches
        context = TaskContext.get()
        assert context is not None
        flag = tmp_path / f"died-{context.partitionId()}"
        if context.partitionId() == 3 and not flag.exists():
            flag.touch()
            os._exit(1)

    dying = rows.mapInArrow(die_once, rows.schema)
    conninfo = database.conninfo(Role.WRITER)

    # `local[2]` tries a task once: the job fails and is run again, as Dagster does. A cluster tries the task again.
    with pytest.raises(Exception, match=r"(?i)python worker"):
        write_results(dying, conninfo, write_for(ORDINARY))
    assert candidates(tenants) == []
    write_results(dying, conninfo, write_for(ORDINARY))

    assert len(candidates(tenants)) == 40


def test_only_attempts_that_the_driver_names_count(database: Database, tenants: Tenants) -> None:
    """What speculative execution does: two attempts at one task, both to the end."""
    writer = ResultsWriter(database.conninfo(Role.WRITER), write_for(ORDINARY))
    first, twin, other = (writer.write(iter([batch(client)])) for client in ("same", "same", "other"))
    assert staged(tenants) == 3

    writer.commit([first, other, None])

    assert candidates(tenants) == [(ORDINARY, "other"), (ORDINARY, "same")]
    assert twin.attempt_id != first.attempt_id
    assert staged(tenants) == 1
    tenants.query("UPDATE clientmgr.orphan_candidates_staged SET staged_at = now() - interval '25 hours'")
    writer.commit([])
    assert staged(tenants) == 0, "what nobody named is removed a day later"


def test_rows_that_a_crash_took_from_the_staging_table_are_missed(database: Database, tenants: Tenants) -> None:
    writer = ResultsWriter(database.conninfo(Role.WRITER), write_for(ORDINARY))
    attempt = writer.write(iter([batch("c")]))
    tenants.query("DELETE FROM clientmgr.orphan_candidates_staged")

    with pytest.raises(LostRowsError, match="1 rows were staged, 0 are left"):
        writer.commit([attempt])


def test_an_aborted_write_leaves_nothing(database: Database, tenants: Tenants) -> None:
    writer = ResultsWriter(database.conninfo(Role.WRITER), write_for(ORDINARY))
    attempt = writer.write(iter([batch("c")]))

    writer.abort([attempt, None])

    assert (candidates(tenants), staged(tenants)) == ([], 0)


def test_a_failed_tenant_keeps_its_earlier_results_and_is_recorded(database: Database, tenants: Tenants) -> None:
    conninfo = database.conninfo(Role.WRITER)
    early = ResultsWriter(conninfo, write_for(BROKEN))
    early.commit([early.write(iter([batch("early", BROKEN)]))])
    writer = ResultsWriter(conninfo, write_for(ORDINARY, BROKEN))
    rows = pa.Table.from_batches([batch("c", ORDINARY), batch("half", BROKEN), batch("", BROKEN)])
    with_errors = rows.append_column("error", pa.array([None, None, "gone"], pa.string())).combine_chunks()

    writer.commit([writer.write(iter(with_errors.to_batches()))])

    assert candidates(tenants) == [(ORDINARY, "c"), (BROKEN, "early")]
    with database.connect(Role.READER) as connection:
        assert failures_of(connection, "run", "step") == {BROKEN: "gone"}


def test_a_deleted_customers_results_go_with_it(database: Database, tenants: Tenants) -> None:
    tenants.activate(ORDINARY, HUGE)
    writer = ResultsWriter(database.conninfo(Role.WRITER), write_for(ORDINARY, HUGE))
    writer.commit([writer.write(iter([batch("c", ORDINARY), batch("c", HUGE)]))])

    TenantSchemaManager(database, tenants.settings).delete(ORDINARY, actor="test")

    assert candidates(tenants) == [(HUGE, "c")]


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="target"):
        ResultWrite("tenants", "run", "step", ())


def batch(client: str, customer: int = ORDINARY) -> pa.RecordBatch:
    moment = pa.scalar(1_763_248_000_000_000, pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_pydict(
        {
            "customer_id": pa.array([customer], pa.int64()),
            "application_code": ["A"],
            "client_id": [client],
            "silent_since": pa.array([moment.as_py()], moment.type),
            "found_at": pa.array([moment.as_py()], moment.type),
        }
    )
