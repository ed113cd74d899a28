"""What a record of the stream must look like, and what is said of one that does not."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clientmgr.base.errors import InvalidInputError
from streaming.live.records import Position, decode_record
from tests.live.stream import Record, record

NOW = datetime(2025, 11, 16, 9, 0, tzinfo=UTC)


def decode(fields: Record) -> Position:
    as_bytes = {name.encode(): value.encode() if isinstance(value, str) else value for name, value in fields.items()}
    return decode_record(as_bytes, NOW)


def body(fields: Record) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(decode(fields).body())
    return decoded


def test_a_position_has_the_fields_that_were_measured_and_no_others() -> None:
    assert body(record(at=NOW)) == {"deviceId": "d1", "lat": 52.1, "lon": 4.3, "ts": 1763283600000}


def test_every_measured_field_comes_through() -> None:
    measured: dict[str, Any] = {
        "speed": 0.0,
        "course": 181.5,
        "accuracy": 3,
        "attributes": {"ignition": True, "io": [1, None]},
    }
    assert body(record(at=NOW, altitude=12.0, satellites=9, **measured)) == {
        "deviceId": "d1",
        "lat": 52.1,
        "lon": 4.3,
        "ts": 1763283600000,
        **measured,
    }


def test_null_is_absent() -> None:
    found = body(record(at=NOW, speed=None, attributes={}, altitude=None, satellites=None))
    assert found.keys() == {"deviceId", "lat", "lon", "ts"}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2025-11-16T08:59:59.123Z", 1763283599123),
        ("2025-11-16T10:00:00+01:00", 1763283600000),
        ("2025-11-16T08:00:00", 1763280000000),
    ],
)
def test_a_fix_time_is_iso_8601_and_utc_unless_it_says_otherwise(text: str, milliseconds: int) -> None:
    assert decode(record(at=NOW) | {"ts": text}).ts == milliseconds


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"device_id": ""}, "device_id"),
        ({"device_id": "x" * 129}, "device_id"),
        ({"device_id": b"\xff"}, "device_id"),
        ({"device_id": "a\0b"}, "device_id"),
        ({"device_id": "other"}, "payload.deviceId"),
        ({"ts": "yesterday"}, "ts"),
        ({"ts": "1999-12-31T23:59:59Z"}, "ts"),
        ({"ts": (NOW + timedelta(minutes=6)).isoformat()}, "ts"),
        ({"ts": "9999-12-31T23:59:59-23:59"}, "ts"),
        ({"codec": b"\xff"}, "codec"),
        ({"codec": "8\0E"}, "codec"),
        ({"payload": "{"}, "payload"),
        ({"payload": b'{"latitude":1,"longitude":2,"attributes":{"x":"\xff"}}'}, "payload"),
        ({"payload": '{"latitude":1}'}, "payload"),
        ({"payload": '{"latitude":"1","longitude":2}'}, "payload"),
        ({"payload": '{"latitude":91,"longitude":2}'}, "payload"),
        ({"payload": '{"latitude":1,"longitude":1e999}'}, "payload"),
        ({"payload": '{"latitude":1,"longitude":NaN}'}, "payload"),
        ({"payload": '{"latitude":1,"longitude":2,"satellites":-1}'}, "payload"),
        ({"payload": '{"latitude":1,"longitude":2,"attributes":[]}'}, "payload.attributes"),
        ({"payload": '{"latitude":1,"longitude":2,"attributes":' + "[" * 9999 + "]" * 9999 + "}"}, "payload"),
    ],
)
def test_a_wrong_value_is_refused_by_its_field(change: Record, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        decode(record(at=NOW) | change)
    assert caught.value.field == field


@pytest.mark.parametrize("missing", ["device_id", "ts", "payload"])
def test_a_missing_field_is_named(missing: str) -> None:
    fields = record(at=NOW)
    del fields[missing]
    with pytest.raises(InvalidInputError, match=f"{missing}: expected a value"):
        decode(fields)
