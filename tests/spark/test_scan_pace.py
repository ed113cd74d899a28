"""A scan of DynamoDB takes its share of the table's capacity and no more, and slows down where it is throttled."""

import itertools
import json
import time
import uuid
from collections import defaultdict
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from clientmgr.devices.legacy.dynamodb import DynamoDbAccess
from clientmgr.local.standins.dynamodb import DynamoDbStandIn
from clientmgr_dagster.spark.dynamodb_source import SCHEMA, DeviceScan, DynamoDbReader
from clientmgr_dagster.spark.scan_pace import FIRST_ITEMS, ScanPace, table_capacity
from tests.device_mapper.dynamodb import THROTTLED, MoodyDynamoDb
from tests.spark.tenants import ORDINARY

COLUMNS = StructType(
    [
        StructField(name, LongType() if kind == "bigint" else StringType())
        for name, kind in (column.split() for column in SCHEMA.split(", "))
    ]
)


class Clock:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def page(items: int, units: float, *, retries: int = 0) -> dict[str, Any]:
    return {
        "Items": [],
        "ScannedCount": items,
        "ConsumedCapacity": {"CapacityUnits": units},
        "ResponseMetadata": {"RetryAttempts": retries},
    }


def test_what_is_taken_is_paid_for_before_more_is_asked_for() -> None:
    clock = Clock()
    pace = ScanPace(10.0, clock=lambda: clock.now, sleep=clock.sleep)
    taken = 0.0
    for _ in range(20):
        pace.wait()
        assert clock.now - 100.0 >= taken / 10.0 - 1e-6
        pace.took(page(pace.items, pace.items * 0.5))
        taken += pace.items * 0.5
    assert clock.now - 100.0 == pytest.approx(taken / 10.0, rel=0.1), "and it does not dawdle"


def test_a_page_is_about_what_a_second_pays_for() -> None:
    pace = ScanPace(40.0)
    assert pace.items == FIRST_ITEMS
    pace.took(page(25, 3.125))
    assert pace.items == 320
    pace.took(page(320, 3200.0))
    assert pace.items == 4, "these items are larger"


def test_where_requests_are_throttled_the_pace_is_halved_and_recovers() -> None:
    clock = Clock()
    pace = ScanPace(8.0, clock=lambda: clock.now, sleep=clock.sleep)
    pace.took(page(8, 8.0, retries=2))
    pace.wait()
    assert clock.now == 102.0
    for _ in range(20):
        pace.took(page(1, 1e-9))
    assert pace.items > 1
    pace.took(page(8, 8.0))
    assert pace.items == 8, "at its full rate again"
    for _ in range(50):
        pace.took(page(8, 8.0, retries=1))
    assert pace.items == 1, "as slow as that, and not slower"


@pytest.mark.parametrize(
    ("table", "units"),
    [
        ({"ProvisionedThroughput": {"ReadCapacityUnits": 40}}, 40.0),
        (
            {"ProvisionedThroughput": {"ReadCapacityUnits": 0}, "OnDemandThroughput": {"MaxReadRequestUnits": 500}},
            500.0,
        ),
        ({"OnDemandThroughput": {"MaxReadRequestUnits": -1}, "WarmThroughput": {"ReadUnitsPerSecond": 13000}}, 13000.0),
        ({"ProvisionedThroughput": {"ReadCapacityUnits": 0}}, 12000.0),
    ],
)
def test_capacity_is_what_the_table_says_of_itself(table: dict[str, Any], units: float) -> None:
    assert table_capacity(table) == units


@pytest.fixture
def table(dynamodb_stand_in: DynamoDbStandIn) -> str:
    """150 devices of a customer, in a table of 200 read units a second."""
    name = f"paced-{uuid.uuid4().hex[:8]}"
    dynamodb_stand_in.create_devices_table(name, read_units=200)
    dynamodb_stand_in.put(
        name, [{"contactKey": {"S": f"{ORDINARY}#{n}"}, "deviceKey": {"S": f"APP-1#c{n}"}} for n in range(150)]
    )
    return name


class Throttling(MoodyDynamoDb):
    """Throttles the fourth request, in the middle of the scan."""

    def answer(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        return (400, THROTTLED) if self.requests == 4 else super().answer(body, headers)


def scanned(reader: DynamoDbReader) -> int:
    rows = [row for segment in reader.partitions() for batch in reader.read(segment) for row in batch.to_pylist()]
    assert not [row["error"] for row in rows if row["error"]]
    return sum(row["items"] or 0 for row in rows)


class Recording(MoodyDynamoDb):
    """Notes when each page of a segment was asked for, and what the page took."""

    def __init__(self, server: DynamoDbStandIn) -> None:
        # moto is what the class is made for; it passes on to any server that has a URL.
        super().__init__(server)  # type: ignore[arg-type]
        self.pages: dict[int, list[tuple[float, dict[str, Any]]]] = defaultdict(list)

    def answer(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        asked_at = time.monotonic()
        status, answer = super().answer(body, headers)
        if (segment := json.loads(body).get("Segment")) is not None:
            self.pages[segment].append((asked_at, json.loads(answer)))
        return status, answer


def test_a_real_scan_keeps_to_its_share(dynamodb_stand_in: DynamoDbStandIn, table: str) -> None:
    server = Recording(dynamodb_stand_in)
    with server.serving() as url:
        reader = DynamoDbReader(DynamoDbAccess(table, url), DeviceScan((ORDINARY,), 2, 5, share=0.25), COLUMNS)
        assert [segment.units for segment in reader.partitions()] == [25.0, 25.0]
        assert scanned(reader) == 150
    # How the server shares the items out to segments is its own; one of them has more than a first page.
    followed = [pair for pages in server.pages.values() for pair in itertools.pairwise(pages)]
    assert followed
    for (asked_at, page), (asked_again_at, _) in followed:
        assert asked_again_at - asked_at >= page["ConsumedCapacity"]["CapacityUnits"] / 25.0


def test_a_throttled_scan_reads_every_item(dynamodb_stand_in: DynamoDbStandIn, table: str) -> None:
    server = Throttling(dynamodb_stand_in)  # type: ignore[arg-type]
    with server.serving() as url:
        scan = DeviceScan((ORDINARY,), 2, 5, units=5000.0)
        assert scanned(DynamoDbReader(DynamoDbAccess(table, url, attempts=3), scan, COLUMNS)) == 150
    assert server.requests > 4


def test_who_may_not_ask_for_the_capacity_is_told_what_to_set(dynamodb_stand_in: DynamoDbStandIn) -> None:
    class Discreet(MoodyDynamoDb):
        def answer(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
            if "DescribeTable" in str(headers):
                return 400, b'{"__type":"AccessDeniedException","message":"not authorized"}'
            return super().answer(body, headers)

    table = f"paced-{uuid.uuid4().hex[:8]}"
    dynamodb_stand_in.create_devices_table(table)
    with Discreet(dynamodb_stand_in).serving() as url:  # type: ignore[arg-type]
        access = DynamoDbAccess(table, url, attempts=1)
        (refused,) = DynamoDbReader(access, DeviceScan((ORDINARY,), 2, 5), COLUMNS).partitions()
        assert "not authorized" in refused.error
        assert "DYNAMODB_SCAN_UNITS" in refused.error
        segments = DynamoDbReader(access, DeviceScan((ORDINARY,), 2, 5, units=30.0), COLUMNS).partitions()
        assert [segment.units for segment in segments] == [15.0, 15.0]
