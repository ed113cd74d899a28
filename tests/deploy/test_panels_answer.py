"""Every panel of the Grafana dashboard shows something: its queries, asked of a real Prometheus that scrapes all of our
metrics as deploy/prometheus/prometheus.yml tells it to.
"""

import contextlib
import json
import math
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)

from clientmgr.contracts import daemons
from clientmgr.local.embedded.server import free_port
from tests.deploy.files import DEPLOY
from tests.deploy.prometheus_programs import find, missing
from tests.deploy.test_prometheus import RATE_INTERVAL, panels
from tests.waiting import eventually
from tools.docs.metric_names import Collector, Measured, collectors_of

pytestmark = pytest.mark.skipif(find("prometheus") is None, reason=missing("prometheus"))

SCRAPED_EVERY = "250ms"
RATES_OVER: Final = "30s"
MOST_SERIES: Final = 40
"""More lines than that on a panel nobody can tell apart."""
VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("client-manager.writer", "client-manager.republisher", "client-manager.writer-errors"),
    "subscription": ("client-manager.writer", "client-manager.republisher"),
    "status": ("active", "429"),
}
"""What panels choose by. Any other label has any value."""
_LEGEND_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one that has scraped our metrics while they grew."""
    folder = tmp_path_factory.mktemp("prometheus")
    with served_metrics() as port, running(folder, port) as address:
        rates = "min(rate(process_cpu_seconds_total[30s]))"
        eventually(lambda: ask(address, rates), "Prometheus has scraped our metrics twice")
        yield address


@contextlib.contextmanager
def served_metrics() -> Iterator[int]:
    """Every metric of every daemon, alive, on a port."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    found = {Measured.of(one).name: one for entry in daemons.ALL for one in collectors_of(entry)}
    copies = [copy for one in found.values() for copy in copies_of(one, registry)]
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(0.1):
            for copy in copies:
                move(copy)

    for copy in copies:
        move(copy)
    server, serving = start_http_server(0, "127.0.0.1", registry=registry)
    living = threading.Thread(target=live)
    living.start()
    try:
        yield int(server.server_port)
    finally:
        ended.set()
        living.join()
        server.shutdown()
        server.server_close()
        serving.join()


def copies_of(collector: Collector, registry: CollectorRegistry) -> list[Collector]:
    """A metric of that name, kind and labels, with children; the original stays as it is."""
    measured = Measured.of(collector)
    copy = type(collector)(measured.name, measured.help, measured.labels, registry=registry)
    if not measured.labels:
        return [copy]
    rows = max(len(VALUES.get(label, ("one",))) for label in measured.labels)
    return [
        copy.labels(
            *(values[row % len(values)] for values in (VALUES.get(label, ("one",)) for label in measured.labels))
        )
        for row in range(rows)
    ]


def move(collector: Collector) -> None:
    match collector:
        case Counter():
            collector.inc()
        case Gauge():
            collector.set(time.time() - 60)
        case Histogram():
            collector.observe(0.02)


@contextlib.contextmanager
def running(folder: Path, metrics_port: int) -> Iterator[str]:
    """A Prometheus with our own configuration, but for where the metrics are."""
    (folder / "alerts.yml").write_text((DEPLOY / "prometheus" / "alerts.yml").read_text())
    configuration = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    configuration["global"] = {"scrape_interval": SCRAPED_EVERY, "scrape_timeout": SCRAPED_EVERY}
    (job,) = configuration["scrape_configs"]
    del job["authorization"]
    job["static_configs"] = [{**job["static_configs"][0], "targets": [f"127.0.0.1:{metrics_port}"]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(find("prometheus")),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def ask(address: str, query: str) -> list[dict[str, Any]]:
    """The series of the answer; none while nobody answers."""
    url = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310
        series: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return series
    return []


def test_every_panel_shows_something(prometheus: str) -> None:
    wrong = {}
    for panel in panels():
        for target in panel.get("targets", ()):
            series = ask(prometheus, target["expr"].replace(RATE_INTERVAL, RATES_OVER))
            if problem := what_is_wrong(series, target["legendFormat"], is_one=panel["type"] == "stat"):
                wrong[f"{panel['title']} {target['refId']}"] = problem
    assert wrong == {}


def what_is_wrong(series: list[dict[str, Any]], legend: str, *, is_one: bool) -> str:
    """With an answer to a panel's query; empty: nothing."""
    if not series:
        return "no data"
    if all(math.isnan(float(one["value"][1])) for one in series):
        return "no number"
    if is_one and len(series) > 1:
        return f"{len(series)} series, and it shows one"
    if len(series) > MOST_SERIES:
        return f"{len(series)} series"
    names = [tuple(one["metric"].get(label, "") for label in _LEGEND_LABEL.findall(legend)) for one in series]
    if len(set(names)) < len(names):
        return f"several lines have one name: {legend}"
    return "" if all(all(name) for name in names) else f"a label is missing: {legend}"
