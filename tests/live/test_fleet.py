"""The made-up fleet, and tokens from the command line."""

import itertools
import math
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clientmgr.live.tokens import TokenError, make_token, read_token
from clientmgr.local.fleet import COURSES, METRES_PER_DEGREE, Fleet
from streaming.live.records import decode_record
from tests.cli.calling import Cli
from tests.keys import TEST_KEY

NOW = datetime.now(UTC)


def test_a_fleet_moves_at_the_speed_that_it_tells() -> None:
    for mover in Fleet.of(9).movers:
        places = []
        for _ in range(20):
            fields = {name.encode(): value.encode() for name, value in mover.advance(1.0, NOW).items()}
            position = decode_record(fields, NOW)
            places.append((position.payload.latitude, position.payload.longitude, position.payload.speed or 0.0))
        for (south, west, _), (north, east, speed) in itertools.pairwise(places):
            metres = math.hypot(north - south, (east - west) * math.cos(math.radians(north))) * METRES_PER_DEGREE
            assert metres == pytest.approx(speed / 3.6, abs=0.5)


def test_some_devices_take_part_in_two_events_and_strays_in_none() -> None:
    fleet = Fleet.of(30, orphans=2)
    entered = Counter(device for devices in fleet.participants.values() for device in devices)
    assert sorted(entered.values()) == [1] * 27 + [2] * 3
    assert [mover.device_id for mover in fleet.movers if mover.device_id not in entered] == ["stray-001", "stray-002"]
    assert fleet.participants.keys() == {course.event for course in COURSES}


def test_the_command_line_makes_tokens_that_count(tmp_path: Path) -> None:
    made = Cli({"LIVE_TOKEN_KEY": TEST_KEY}).ok("live", "token", "E1", "E2", "--hours", "2").out.strip()
    grant = read_token(TEST_KEY.encode(), made)
    assert grant.events == {"E1", "E2"}
    assert grant.expires_at == pytest.approx(time.time() + 7200, abs=300)


def test_the_key_is_made_once_and_kept(tmp_path: Path) -> None:
    cli = Cli({"DATA_DIR": str(tmp_path)})
    made = [cli.ok("live", "token", "*").out.strip() for _ in range(2)]
    key = (tmp_path / "live_token_key").read_bytes()
    assert [read_token(key, token).allows("any") for token in made] == [True, True]
    assert (tmp_path / "live_token_key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_token_that_was_tampered_with_does_not_count(part: int) -> None:
    parts = make_token(b"k", ["E1"], 60).split(".")
    parts[part] = parts[part][::-1]
    with pytest.raises(TokenError):
        read_token(b"k", ".".join(parts))
