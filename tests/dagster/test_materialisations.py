"""Which tenants of a run get an event, and what is stored for them, on Dagster's PostgreSQL storage."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.settings import Settings
from clientmgr.contracts import daemons
from clientmgr.local.processes.programs import dagster_environment
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.chunks import active_customers_of
from clientmgr_dagster.failing import fail_if_tenants_failed
from clientmgr_dagster.materialisations import SCHEDULE_TAG, Last, worth_an_event
from clientmgr_dagster.metadata import log_partitions
from clientmgr_dagster.partitions import partition_range
from clientmgr_dagster.policies import PER_TENANT
from clientmgr_dagster.resources import TenantsResource

Query = Callable[..., list[tuple[Any, ...]]]
KEY = dg.AssetKey("counted")
NOW = datetime(2026, 11, 16, 2, 15, tzinfo=UTC)
TENANTS = tuple(CustomerId(number) for number in range(1, 13))


def last(numbers: Mapping[str, int | str], *, hours: float = 1, failed_since: bool = False) -> Last:
    return Last(NOW - timedelta(hours=hours), numbers, failed_since)


def test_a_scheduled_run_tells_of_tenants_that_changed_were_worked_on_failed_since_or_are_new() -> None:
    same: Mapping[str, int | str] = {"devices": 3, "deleted": 0}
    new, equal, other, worked_on, failed, idle = TENANTS[:6]
    numbers = {new: same, equal: same, other: {"devices": 4, "deleted": 0}, failed: same}
    numbers[worked_on] = {"devices": 3, "deleted": 2}
    before = {equal: last(same), other: last(same), failed: last(same, failed_since=True)}
    before[worked_on] = last(numbers[worked_on])
    numbers[idle], before[idle] = same, last({"devices": 3, "deleted": 2})

    chosen = worth_an_event(numbers, before, work=("deleted",))

    assert chosen == {new, other, worked_on, failed}


def test_where_no_tenant_changed_the_one_with_the_oldest_event_is_renewed() -> None:
    numbers = {customer: {"devices": 3} for customer in TENANTS}
    before = {customer: last({"devices": 3}, hours=customer) for customer in TENANTS}

    assert worth_an_event(numbers, before, work=()) == {TENANTS[-1]}
    assert worth_an_event({}, {}, work=()) == set()


@pytest.fixture
def stored(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: TenantSchemaManager
) -> Iterator[dg.DagsterInstance]:
    """An instance as the daemon of `up` has it, with three tenants."""
    data = settings.model_copy(update={"data_dir": tmp_path})
    entry = next(one for one in daemons.DAGSTER if one.name == "dagster-daemon")
    for name, value in dagster_environment(entry, data, {}).items():
        if name.startswith("DAGSTER_"):
            monkeypatch.setenv(name, value)
    manager.activate([1, 2, 3], actor="test")
    with dg.DagsterInstance.get() as instance:
        instance.add_dynamic_partitions("tenants", ["1", "2", "3"])
        yield instance


class Counting:
    """An asset per tenant whose numbers the test says. Those without a number fail."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.numbers: dict[int, int] = {1: 10, 2: 20, 3: 30}

        @dg.asset(**PER_TENANT, name="counted", output_required=False)
        def counted(context: dg.AssetExecutionContext, tenants: TenantsResource) -> Iterator[dg.AssetCheckResult]:
            customers = active_customers_of(context, tenants)
            own = ((one, {"rows": self.numbers[one]}) for one in customers if one in self.numbers)
            log_partitions(context, "counted", own)
            fail_if_tenants_failed(tenants, customers, {one: "no" for one in customers if one not in self.numbers})
            yield from ()

        self.asset = counted

    def run(self, *, scheduled: bool) -> list[str | None]:
        """The partitions that got an event, in order."""
        tags = partition_range(["1", "3"]) | ({SCHEDULE_TAG: "nightly"} if scheduled else {})
        result = dg.materialize(
            [self.asset],
            instance=self.instance,
            tags=tags,
            resources={"tenants": TenantsResource()},
            raise_on_error=False,
        )
        written = self.instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        partitions = [event.get_dagster_event().partition for event in written]
        # Of a step that failed in the end, Dagster returns nothing.
        told = [one.partition for one in result.asset_materializations_for_node("counted")]
        assert told == (partitions if result.success else [])
        return partitions

    def failed(self) -> set[str]:
        """What the UI shows as failed, if the runs have failed."""
        storage = self.instance.event_log_storage
        return set(storage.get_latest_asset_partition_materialization_attempts_without_materializations(KEY))


def test_a_schedule_leaves_out_who_did_not_change_and_a_person_always_sees_a_result(
    stored: dg.DagsterInstance, query: Query
) -> None:
    counting = Counting(stored)

    assert counting.run(scheduled=True) == ["1", "2", "3"]
    batches = """SELECT count(*), count(DISTINCT xmin::text) FROM dagster.event_logs
        WHERE dagster_event_type = 'ASSET_MATERIALIZATION'"""
    assert query(batches) == [(3, 1)], "one statement writes them all"
    plans = "SELECT count(*) FROM dagster.event_logs WHERE dagster_event_type = 'ASSET_MATERIALIZATION_PLANNED'"
    assert query(plans) == [(1,)], "one for the run, not one for each tenant"
    assert counting.run(scheduled=True) == ["1"], "one of them tells that the schedule works"

    counting.numbers[2] = 21
    assert counting.run(scheduled=True) == ["2"]
    assert counting.run(scheduled=False) == ["1", "2", "3"]


def test_only_the_tenants_that_failed_are_shown_as_failed_and_the_next_success_is_told(
    stored: dg.DagsterInstance,
) -> None:
    counting = Counting(stored)
    counting.run(scheduled=True)
    del counting.numbers[2]

    assert counting.run(scheduled=True) == ["1"]
    assert counting.failed() == {"2"}
    status = stored.get_status_by_partition(KEY, ["1", "2", "3"], PER_TENANT["partitions_def"])
    assert status is not None
    assert {key: str(one.value) for key, one in status.items() if one} == {
        "1": "MATERIALIZED",
        "2": "FAILED",
        "3": "MATERIALIZED",
    }

    counting.numbers[2] = 20
    assert counting.run(scheduled=True) == ["2"]
    assert counting.failed() == set()


def test_what_dagster_plans_by_partition_is_materialised_by_partition(
    stored: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a run that fails for one tenant would show all that it left out as failed. So it is under `dagster dev`."""
    monkeypatch.delenv("DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS")
    counting = Counting(stored)

    assert counting.run(scheduled=True) == counting.run(scheduled=True) == ["1", "2", "3"]


def test_a_run_that_a_person_launches_is_planned_by_partition(settings: Settings, tmp_path: Path) -> None:
    data = settings.model_copy(update={"data_dir": tmp_path})
    planned_as_a_whole = {
        entry.name: "DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS" in dagster_environment(entry, data, {})
        for entry in daemons.DAGSTER
    }
    assert not planned_as_a_whole.pop("dagster-webserver")
    assert all(planned_as_a_whole.values())
