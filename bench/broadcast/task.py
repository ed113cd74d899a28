"""What the viewers are told, and what they tell."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """Who is to watch what."""

    port: int
    connections: int
    events: int
    expected: int
    """Frames in all; with none, it ends after `seconds`."""
    seconds: float = 0.0
    stalled: int = 0
    """Of one event, besides the others: subscribed, and never reading."""
    bytes_per_second: int = 0
    """Read no faster than this."""
    lags: bool = True
    """Look for times in what comes. Not where it comes as fast as it goes: ours would rightly find these too slow."""


@dataclass
class Report:
    """What came."""

    frames: int
    lags_ms: list[float]
    cpu_s: float
