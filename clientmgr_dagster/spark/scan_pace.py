"""How quickly a segment of a DynamoDB table is scanned: by the capacity that it takes, so that others are served too.

DynamoDB says after each page what the page took. The next one waits until that is paid for at the segment's rate, and
asks for about as many items as a second pays for: a full page of 1 MB takes 128 units at once, which would throttle all
readers of a small table. Where requests were tried again, the rate is halved, and it recovers page by page.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

ON_DEMAND_UNITS: Final = 12_000
"""What DynamoDB promises a new on-demand table, a second, where it says nothing else of it."""
FIRST_ITEMS: Final = 25
LEAST_SHARE: Final = 1 / 64
"""Of its rate: a segment that is throttled goes no slower than that."""
RECOVERY: Final = 1.1


def table_capacity(table: Mapping[str, Any]) -> float:
    """The read units a second of a table that DescribeTable describes."""
    known = (
        table.get("ProvisionedThroughput", {}).get("ReadCapacityUnits"),
        table.get("OnDemandThroughput", {}).get("MaxReadRequestUnits"),
        table.get("WarmThroughput", {}).get("ReadUnitsPerSecond"),
    )
    # An on-demand table is described with a capacity of 0, one without a limit with -1.
    return float(next((units for units in known if units and units > 0), ON_DEMAND_UNITS))


class ScanPace:
    """The pace of one segment: `wait`, ask for `items`, then say what it `took`."""

    def __init__(
        self,
        units_a_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._full = self._rate = units_a_second
        self._clock = clock
        self._sleep = sleep
        self._paid_at = clock()
        self.items = FIRST_ITEMS

    def wait(self) -> None:
        """Until all that was taken is paid for."""
        if (left := self._paid_at - self._clock()) > 0:
            self._sleep(left)

    def took(self, page: Mapping[str, Any]) -> None:
        """A page came. What was not used meanwhile is not saved up."""
        looked_at = max(page.get("ScannedCount", len(page["Items"])), 1)
        # A server that does not say it (a stand-in): as for items of 4 KB.
        units = page.get("ConsumedCapacity", {}).get("CapacityUnits") or 0.5 * looked_at
        tried_again = page.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
        slowest = self._full * LEAST_SHARE
        self._rate = max(self._rate / 2, slowest) if tried_again else min(self._rate * RECOVERY, self._full)
        self._paid_at = max(self._clock(), self._paid_at) + units / self._rate
        self.items = max(1, int(self._rate * looked_at / units))
