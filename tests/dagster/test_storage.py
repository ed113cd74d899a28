"""Dagster's storage as `up` configures it: what the evaluations of a sensor in the code server ask of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.remote_origin import RegisteredCodeLocationOrigin
from dagster._grpc.impl import get_external_sensor_execution
from sqlalchemy.pool import NullPool

from clientmgr_dagster import storage
from clientmgr_dagster.definitions import defs

SENSOR = "tenant_registry_sensor"


def evaluate(reference: Any) -> object:
    """As the code server does it: an instance for this one evaluation."""
    repository, origin = defs.get_repository_def(), RegisteredCodeLocationOrigin("tests")
    return get_external_sensor_execution(repository, origin, reference, SENSOR, None, None, None, None, None)


@contextmanager
def statements_to_dagster() -> Iterator[list[str]]:
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    sa.event.listen(sa.engine.Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(sa.engine.Engine, "before_cursor_execute", note)


def test_an_evaluation_asks_for_what_it_needs_and_not_anew_what_there_is(stored: dg.DagsterInstance) -> None:
    reference = stored.get_ref()
    assert isinstance(evaluate(reference), SensorExecutionData), "the first of a process asks a little more"
    with statements_to_dagster() as statements:
        for _ in range(3):
            assert isinstance(evaluate(reference), SensorExecutionData)
    asked = [one for one in statements if "FROM dynamic_partitions" in one]
    assert len(asked) == 3
    assert len(statements) == 6, "besides, Dagster looks before each whether that table is there"


def test_tables_that_are_dropped_under_a_process_are_made_again(
    stored: dg.DagsterInstance, query: Callable[..., list[tuple[Any, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = stored.get_ref()
    query("DROP TABLE dagster.runs, dagster.dynamic_partitions, dagster.event_logs CASCADE")
    assert not isinstance(evaluate(reference), SensorExecutionData)

    monkeypatch.setattr(storage, "LOOK_EVERY_S", 0.0)

    assert isinstance(evaluate(reference), SensorExecutionData)


def test_no_connection_is_shared_with_a_fork(stored: dg.DagsterInstance) -> None:
    made = stored.get_ref().storage
    assert isinstance(made, storage.Storage)
    parts = (made.run_storage, made.event_log_storage, made.schedule_storage)
    (engine,) = {getattr(part, "_engine") for part in parts}  # noqa: B009  # of Dagster's Postgres storages
    assert isinstance(engine.pool, NullPool), "each connection is closed after its use"


def test_the_daemons_looks_at_its_sensors_do_not_ask_which_tables_there_are(stored: dg.DagsterInstance) -> None:
    stored.all_instigator_state()
    stored.get_instigator_state("origin", "selector")
    with statements_to_dagster() as statements:
        stored.all_instigator_state()
        stored.get_instigator_state("origin", "selector")
    assert len(statements) == 2, statements
