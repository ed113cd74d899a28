"""What a run did before an error or an interrupt is reported, and a step that is tried again leaves none of it out."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from sqlalchemy.exc import OperationalError

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.orphans import deletion
from clientmgr.orphans.deletion import OrphanDeletion
from clientmgr_dagster.defs.contact_deletion.assets import MESSAGES, contact_deletions
from clientmgr_dagster.defs.orphans.assets import DELETIONS, orphans
from clientmgr_dagster.policies import RetryWhereItHelps
from clientmgr_dagster.resources import TenantsResource, bigquery_resource
from clientmgr_dagster.runs import wanted
from clientmgr_dagster.spark.session import SparkResource
from tests.orphans.rig import ONE, TWO, Rig

RESULTS = "SELECT customer_id, outcome, deleted FROM clientmgr.orphan_deletion_results ORDER BY 1"
WAITING = "INSERT INTO clientmgr.deleted_contacts SELECT {customer}, n, now(), now(), NULL FROM generate_series(1, 5) n"


@pytest.fixture
def settings(
    database: Database, settings_for: Callable[[Database], Settings], monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """One tenant after the other, in batches of four."""
    settings = settings_for(database).model_copy(update={"tenant_connections": 1, "orphan_batch_size": 4})
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.fixture
def rig(database: Database, settings: Settings, instance: dg.DagsterInstance) -> Rig:
    instance.add_dynamic_partitions("tenants", [str(ONE), str(TWO)])
    return Rig(database, settings)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    real = RetryWhereItHelps.calculate_delay
    monkeypatch.setattr(RetryWhereItHelps, "calculate_delay", lambda self, number: 0 * real(self, number))


def materialize(instance: dg.DagsterInstance, asset: str, config: dict[str, Any] | None = None) -> str:
    """The id of the run, however it ended: of one that is interrupted Dagster returns nothing."""
    before = {run.run_id for run in instance.get_runs()}
    with contextlib.suppress(DagsterExecutionInterruptedError):
        dg.materialize(
            [orphans, contact_deletions],
            instance=instance,
            selection=[asset],
            resources={"tenants": TenantsResource(), "spark": SparkResource(), "bigquery": bigquery_resource},
            run_config={"ops": {"orphans": {"config": config}}} if config else None,
            tags={"dagster/asset_partition_range_start": str(ONE), "dagster/asset_partition_range_end": str(TWO)},
            raise_on_error=False,
        )
    (run_id,) = {run.run_id for run in instance.get_runs()} - before
    return run_id


def status(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    return instance.get_runs(dg.RunsFilter(run_ids=[run_id]))[0].status


def told(instance: dg.DagsterInstance, run_id: str, number: str) -> dict[CustomerId, list[Any]]:
    """That number in each of a tenant's materialisations, in their order."""
    numbers: dict[CustomerId, list[Any]] = {}
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
        one = entry.asset_materialization
        assert one is not None
        numbers.setdefault(CustomerId(int(one.partition or 0)), []).append(one.metadata[number].value)
    return numbers


def summed_up(instance: dg.DagsterInstance, run_id: str, number: str) -> list[Any]:
    """That number in each summary of the run."""
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION)
    observations = [entry.asset_observation for entry in entries]
    return [one.metadata[number].value for one in observations if one is not None]


def answers(*looks: bool | BaseException) -> Callable[..., bool]:
    """Whether the run is wanted: these answers in this order, then yes."""
    left: Iterator[bool | BaseException] = iter(looks)

    def run_is_wanted(*_: object) -> bool:
        answer = next(left, True)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return run_is_wanted


def storage_is_away() -> OperationalError:
    return OperationalError("SELECT", {}, Exception("the server is away"))


# A tenant is looked at once before its first batch, and once before each.
DONE = (True,) * 5


@pytest.mark.parametrize("looks", [DONE, (*DONE, True, True)], ids=["between two tenants", "after a batch"])
def test_a_step_tried_again_reports_all_that_the_run_deleted(
    rig: Rig, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, looks: tuple[bool, ...]
) -> None:
    rig.fill(ONE)
    rig.fill(TWO)
    monkeypatch.setattr(wanted, "run_is_wanted", answers(*looks, storage_is_away()))

    run_id = materialize(instance, DELETIONS)

    assert status(instance, run_id) is dg.DagsterRunStatus.SUCCESS
    assert rig.query(RESULTS) == [(ONE, "deleted", 10), (TWO, "deleted", 10)]
    assert told(instance, run_id, "deleted") == {ONE: [10, 10], TWO: [10]}
    assert summed_up(instance, run_id, "deleted")[-1] == 20


def test_an_interrupt_leaves_the_tenants_that_were_done_materialised(
    rig: Rig, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.fill(ONE)
    rig.fill(TWO)
    run = OrphanDeletion.run

    def interrupted(self: OrphanDeletion, customers: list[CustomerId]) -> None:
        run(self, customers)
        raise DagsterExecutionInterruptedError

    monkeypatch.setattr(OrphanDeletion, "run", interrupted)

    run_id = materialize(instance, DELETIONS)

    assert status(instance, run_id) is not dg.DagsterRunStatus.SUCCESS
    assert told(instance, run_id, "deleted") == {ONE: [10], TWO: [10]}
    assert summed_up(instance, run_id, "deleted") == [20]


def test_an_interrupt_is_final_also_where_nothing_can_be_reported(
    rig: Rig, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.fill(ONE)
    attempts = []

    def interrupted(*_: object) -> None:
        attempts.append(1)
        monkeypatch.setitem(deletion._QUERIES, "results_of_run", "SELECT 1 / 0")
        raise DagsterExecutionInterruptedError

    monkeypatch.setattr(OrphanDeletion, "run", interrupted)

    materialize(instance, DELETIONS)

    assert attempts == [1]


def test_a_dry_run_tried_again_reports_what_it_would_delete_once(
    rig: Rig, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.fill(ONE)
    rig.fill(TWO)
    rig.query("""UPDATE "tenant_1".devices SET orphaned_since = now() WHERE client_id = 'c1'""")
    monkeypatch.setattr(wanted, "run_is_wanted", answers(True, storage_is_away()))

    run_id = materialize(instance, DELETIONS, {"dry_run": True})

    assert told(instance, run_id, "deleted") == {ONE: [9, 9], TWO: [10]}
    assert told(instance, run_id, "spared") == {ONE: [1, 1], TWO: [0]}
    assert rig.query(RESULTS) == [(ONE, "dry run", 0), (TWO, "dry run", 0)]
    assert summed_up(instance, run_id, "deleted")[-1] == 0


def test_a_run_that_needs_no_spark_starts_none(
    rig: Rig, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_session(*_: object, **__: object) -> None:
        raise AssertionError("this takes seconds")

    monkeypatch.setattr("clientmgr_dagster.spark.session.start_session", start_session)

    rig.fill(ONE)
    rig.fill(TWO)
    assert status(instance, materialize(instance, DELETIONS)) is dg.DagsterRunStatus.SUCCESS


def test_what_was_published_before_an_error_is_reported(
    rig: Rig, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for customer in (ONE, TWO):
        rig.query(WAITING.format(customer=customer))
    # The first tenant: a batch, and a look that finds no other.
    monkeypatch.setattr(wanted, "run_is_wanted", answers(True, True, storage_is_away()))

    run_id = materialize(instance, MESSAGES)

    assert status(instance, run_id) is dg.DagsterRunStatus.SUCCESS
    assert {one: sum(messages) for one, messages in told(instance, run_id, "messages").items()} == {ONE: 5, TWO: 5}
    assert summed_up(instance, run_id, "contacts") == [5, 5]


def test_what_was_published_before_a_stop_is_reported_and_nothing_of_those_not_reached(
    rig: Rig, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for customer in (ONE, TWO):
        rig.query(WAITING.format(customer=customer))
    monkeypatch.setattr(wanted, "run_is_wanted", answers(True, True, False))

    run_id = materialize(instance, MESSAGES)

    assert status(instance, run_id) is not dg.DagsterRunStatus.SUCCESS
    assert told(instance, run_id, "messages") == {ONE: [5]}
