"""How often passwords may be tried: per person and address, per address, and per person. No I/O.

Whoever guesses somebody's password shuts out themselves, not that person: a device or an address from which somebody
has signed in before counts by itself.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from clientmgr.audit.log import Detail

WINDOW_S: Final = 300.0
REMEMBERED: Final = 10_000
KNOWN_FOR_S: Final = 30 * 86400.0

PER_PAIR = 10
"""Wrong passwords of one name from one address."""
PER_ADDRESS = 30
"""Wrong passwords from one address, whatever the names: more is spraying."""
PER_NAME = 50
"""Wrong passwords of one name from anywhere. Beyond that, strange addresses may try only now and then."""
BETWEEN_STRANGERS_S = 10.0

REPORTED_AT: Final = frozenset({1, 10, 100, 1_000, 10_000, 100_000})
REPORTS_AN_HOUR = 60
"""Nobody fills the audit log by guessing: what is beyond is counted, and told by the next report."""


class TooManyAttemptsError(Exception):
    """Somebody is guessing passwords, or more are being checked than we can."""

    def __init__(self, retry_after_s: float, status: int = 429) -> None:
        super().__init__("too many attempts")
        self.retry_after_s = max(1, int(retry_after_s))
        self.status = status


@dataclass(frozen=True, slots=True)
class FailureReport:
    """What the audit log gets to know about wrong passwords."""

    name: str
    """Empty: no user has the name. It may be a password in the wrong field, so it is not told."""
    address: str
    failures: int
    """From that address within the window."""
    unreported: int
    """Reports that were left out since the last."""

    @property
    def details(self) -> dict[str, Detail]:
        """As the audit log keeps them."""
        return {
            "user": self.name or "(no such user)",
            "address": self.address,
            "failures": self.failures,
            "unreported": self.unreported,
        }


class _Counts:
    """How many of something in the window. The oldest are forgotten where there are too many to remember."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counted: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()

    def of(self, what: Hashable) -> int:
        count, last = self._counted.get(what, (0, 0.0))
        return count if self._clock() - last <= WINDOW_S else 0

    def add(self, what: Hashable, by: int = 1) -> int:
        count = max(0, self.of(what) + by)
        self._counted[what] = (count, self._clock())
        self._counted.move_to_end(what)
        if len(self._counted) > REMEMBERED:
            self._counted.popitem(last=False)
        return count

    def forget(self, what: Hashable) -> None:
        self._counted.pop(what, None)


class Attempts:
    """What was tried, by whom. An attempt counts before it is checked: many at once are many attempts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pairs, self._addresses, self._names = _Counts(clock), _Counts(clock), _Counts(clock)
        self._stranger_at: OrderedDict[str, float] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._reports_left, self._reports_at = float(REPORTS_AN_HOUR), clock()
        self._unreported = 0

    def begin(self, name: str, address: str, device: str) -> None:
        """Count an attempt; raises `TooManyAttemptsError` where it may not be made. `device`: one of theirs."""
        pair = (name, device or address)
        if self._pairs.of(pair) >= PER_PAIR:
            raise TooManyAttemptsError(WINDOW_S)
        if not self.is_known(name, address, device):
            if self._addresses.of(address) >= PER_ADDRESS:
                raise TooManyAttemptsError(WINDOW_S)
            if self._names.of(name) >= PER_NAME:
                self._slow_down(name)
        self._pairs.add(pair)
        self._addresses.add(address)
        self._names.add(name)

    def is_known(self, name: str, address: str, device: str) -> bool:
        seen_at = self._known.get((name, address))
        return bool(device) or (seen_at is not None and self._clock() - seen_at <= KNOWN_FOR_S)

    def succeeded(self, name: str, address: str, device: str) -> None:
        self._pairs.forget((name, device or address))
        self._addresses.add(address, -1)
        self._names.add(name, -1)
        self._known[(name, address)] = self._clock()
        self._known.move_to_end((name, address))
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def withdrawn(self, name: str, address: str, device: str) -> None:
        """It was not checked after all."""
        self._pairs.add((name, device or address), -1)
        self._addresses.add(address, -1)
        self._names.add(name, -1)

    def failed(self, name: str, address: str, *, exists: bool) -> FailureReport | None:
        """What to report, if anything: the first failure from an address, then the tenth, the hundredth and so on."""
        failures = self._addresses.of(address)
        if failures not in REPORTED_AT:
            return None
        now = self._clock()
        self._reports_left = min(
            REPORTS_AN_HOUR, self._reports_left + (now - self._reports_at) * REPORTS_AN_HOUR / 3600
        )
        self._reports_at = now
        if self._reports_left < 1:
            self._unreported += 1
            return None
        self._reports_left -= 1
        unreported, self._unreported = self._unreported, 0
        return FailureReport(name if exists else "", address, failures, unreported)

    def _slow_down(self, name: str) -> None:
        last = self._stranger_at.get(name)
        wait = 0.0 if last is None else last + BETWEEN_STRANGERS_S - self._clock()
        if wait > 0:
            raise TooManyAttemptsError(wait + 1)
        self._stranger_at[name] = self._clock()
        self._stranger_at.move_to_end(name)
        if len(self._stranger_at) > REMEMBERED:
            self._stranger_at.popitem(last=False)
