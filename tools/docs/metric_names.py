"""What is measured, as Prometheus sees it: the names, kinds and labels of the metrics in the code."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from prometheus_client import Counter, Gauge, Histogram

from clientmgr.contracts.daemon_entry import DaemonEntry

Collector: TypeAlias = Counter | Gauge | Histogram


def collectors_of(entry: DaemonEntry) -> Sequence[Collector]:
    """The metrics that a daemon serves, in the order in which the registry names them."""
    return [collector for name in entry.metrics for collector in _named(name)]


def _named(name: str) -> list[Collector]:
    """All metrics of a module, or the one called `module:NAME`."""
    module, _, attribute = name.partition(":")
    members = vars(importlib.import_module(module))
    found = [members[attribute]] if attribute else list(members.values())
    return [value for value in found if isinstance(value, Counter | Gauge | Histogram)]


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
