"""What is measured, as Prometheus sees it: the names, kinds and labels of the metrics in the code."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from prometheus_client import Counter, Gauge, Histogram

import clientmgr.broker.message_metrics as broker
import clientmgr.operations.system_metrics as system
import clientmgr.sending.metrics as device_mapper
import clientmgr_dashboard.metrics as dashboard
import streaming.live.broadcast.metrics as broadcast
import streaming.live.telemetry.metrics as telemetry

Collector: TypeAlias = Counter | Gauge | Histogram

CONSUMING: Final[Sequence[Collector]] = (
    broker.CONSUMED,
    broker.RETRIED,
    broker.DEAD,
    broker.BATCH_FAILURES,
    broker.BATCH_MESSAGES,
    broker.HANDLING_SECONDS,
)
PUBLISHING: Final[Sequence[Collector]] = (broker.PUBLISHED,)
SUBSCRIPTIONS: Final[Sequence[Collector]] = (
    broker.LAG_MESSAGES,
    broker.LAG_SECONDS,
    broker.WAITING_RETRIES,
    broker.DEAD_LETTERS,
)


def _of(module: object) -> list[Collector]:
    return [value for value in vars(module).values() if isinstance(value, Counter | Gauge | Histogram)]


STANDING: Final[Sequence[Collector]] = _of(system)
DEVICE_MAPPING: Final[Sequence[Collector]] = _of(device_mapper)
BROADCASTING: Final[Sequence[Collector]] = _of(broadcast)
TELEMETRY: Final[Sequence[Collector]] = _of(telemetry)
DASHBOARD: Final[Sequence[Collector]] = _of(dashboard)


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    @classmethod
    def of(cls, collector: Collector) -> "Measured":
        # Labels are known to nobody but the collector: a metric without samples tells none.
        metric = next(iter(collector.describe()))
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        return cls(name, metric.type, tuple(collector._labelnames), metric.documentation)

    def series(self) -> dict[str, frozenset[str]]:
        """The names that it has in queries, each with its labels."""
        labels = frozenset(self.labels)
        if self.kind == "histogram":
            return {f"{self.name}_bucket": labels | {"le"}, f"{self.name}_sum": labels, f"{self.name}_count": labels}
        return {self.name: labels}
