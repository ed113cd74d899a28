"""A made-up fleet for the demo and for trials: devices that move around the closed courses of a few events."""

import asyncio
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import is_transient
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.waiting import wait_for_stop
from clientmgr.live.redis_stream import REDIS_ERRORS, open_redis

log = get_logger(__name__)

METRES_PER_DEGREE = 111_320.0
_STEP = 1e-3
_QUERIES = named_queries("live/queries/participants.sql")


@dataclass(frozen=True)
class Course:
    """A smooth closed line around a place: a circle with a few waves. Points on it are given by an angle in radians."""

    event: str
    latitude: float
    longitude: float
    radius_m: float
    waves: tuple[tuple[int, float, float], ...]
    """(number of waves, height, phase)."""

    def point(self, angle: float) -> tuple[float, float]:
        """Latitude and longitude."""
        radius = self.radius_m * (1 + sum(high * math.sin(many * angle + shift) for many, high, shift in self.waves))
        north, east = radius * math.sin(angle), radius * math.cos(angle) * 1.4
        return (
            self.latitude + north / METRES_PER_DEGREE,
            self.longitude + east / (METRES_PER_DEGREE * math.cos(math.radians(self.latitude))),
        )

    def heading(self, angle: float) -> tuple[float, float]:
        """The direction of travel in degrees, and metres per radian, for a growing angle."""
        (south, west), (north, east) = self.point(angle), self.point(angle + _STEP)
        up = (north - south) * METRES_PER_DEGREE
        right = (east - west) * METRES_PER_DEGREE * math.cos(math.radians(self.latitude))
        return math.degrees(math.atan2(right, up)) % 360, math.hypot(up, right) / _STEP


COURSES = (
    Course("harbour-run", 53.5436, 9.9886, 1800, ((2, 0.25, 0.4), (5, 0.08, 1.0))),
    Course("alster-regatta", 53.5790, 10.0060, 1300, ((3, 0.2, 2.0), (7, 0.05, 0.3))),
    Course("night-ride", 53.5560, 10.0310, 2600, ((2, 0.15, 1.3), (4, 0.12, 0.2), (9, 0.03, 0.0))),
)


class Mover:
    """One device on its course."""

    def __init__(self, device_id: str, course: Course, number: int) -> None:
        self.device_id = device_id
        self.course = course
        self._random = random.Random(number)  # noqa: S311  # the same fleet at every start
        self._angle = self._random.uniform(0, 2 * math.pi)
        self._cruise_kmh = self._random.uniform(9, 38)
        self._speed_kmh = self._cruise_kmh

    def advance(self, seconds: float, now: datetime) -> dict[str, str]:
        """Move on. Returns the record for the stream."""
        # It speeds up and slows down around its usual speed, and stops now and then.
        self._speed_kmh += self._random.uniform(-2, 2) + 0.1 * (self._cruise_kmh - self._speed_kmh)
        if self._random.random() < 0.004:
            self._speed_kmh = 0.0
        self._speed_kmh = max(0.0, self._speed_kmh)
        course, metres_per_radian = self.course.heading(self._angle)
        self._angle += self._speed_kmh / 3.6 * seconds / metres_per_radian
        latitude, longitude = self.course.point(self._angle)
        ts = now.isoformat(timespec="milliseconds")
        payload = {
            "deviceId": self.device_id,
            "ts": ts,
            "latitude": round(latitude, 6),
            "longitude": round(longitude, 6),
            "speed": round(self._speed_kmh, 1),
            "course": round(course, 1),
            "accuracy": round(self._random.uniform(2, 8), 1),
            "satellites": self._random.randint(6, 14),
        }
        return {"ts": ts, "device_id": self.device_id, "codec": "8E", "payload": json.dumps(payload)}


@dataclass(frozen=True)
class Fleet:
    """The devices that move, and the events that they take part in."""

    movers: Sequence[Mover]
    participants: dict[str, list[str]]

    @classmethod
    def of(cls, devices: int, *, orphans: int = 0) -> "Fleet":
        """Spread `devices` over the courses. The first device of each course takes part in the next event too."""
        movers: list[Mover] = []
        participants: dict[str, list[str]] = {course.event: [] for course in COURSES}
        for number in range(devices):
            course = COURSES[number % len(COURSES)]
            device_id = f"{course.event}-{number // len(COURSES) + 1:03d}"
            movers.append(Mover(device_id, course, number))
            participants[course.event].append(device_id)
            if number < len(COURSES):
                participants[COURSES[(number + 1) % len(COURSES)].event].append(device_id)
        movers += [Mover(f"stray-{number + 1:03d}", COURSES[0], devices + number) for number in range(orphans)]
        return cls(movers, participants)

    def register(self, database: Database) -> None:
        """Enter the devices in their events. Safe to repeat."""
        with database.connect(Role.WRITER) as connection:
            for event, device_ids in self.participants.items():
                connection.execute(_QUERIES["enter_event"], {"event_id": event, "device_ids": device_ids})


async def move(settings: Settings, fleet: Fleet, rate: float, stop: asyncio.Event) -> None:
    """Publish positions until `stop` is set: `rate` per second and device, spread evenly over the period."""
    await _register(settings, fleet, stop)
    period_s = 1 / rate
    slices = max(1, min(len(fleet.movers), int(period_s / 0.05)))
    stream = settings.redis_telemetry_stream
    async with open_redis(settings) as client:
        log.info("the fleet moves", devices=len(fleet.movers), events=list(fleet.participants))
        turn = 0
        while not stop.is_set():
            try:
                async with client.pipeline(transaction=False) as pipeline:
                    for mover in fleet.movers[turn::slices]:
                        pipeline.xadd(stream, mover.advance(period_s, datetime.now(UTC)))  # type: ignore[arg-type]
                    await pipeline.execute()
            except REDIS_ERRORS as error:
                log.warning("the positions of the fleet could not be published, trying again", error=str(error))
                await wait_for_stop(stop, 1.0)
            turn = (turn + 1) % slices
            await wait_for_stop(stop, period_s / slices)


async def _register(settings: Settings, fleet: Fleet, stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            await asyncio.to_thread(fleet.register, Database.from_settings(settings))
            return
        except psycopg.Error as error:
            if not is_transient(error):
                raise
            log.warning("the fleet could not be entered in its events yet, trying again", error=str(error).strip())
            await wait_for_stop(stop, 1.0)
