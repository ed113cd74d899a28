"""The dashboard with 10,000 tenants: overview and table, beside their queries alone and the whole table at once.

A process of its own serves; timed is a request from a client that keeps its connection. The overview shares its answer
for a second, so its turns are a second apart.

| variant | what it does |
|---|---|
| ours, the page | HTML as a browser gets it |
| ours, the API | the same rows as JSON |
| everything at once | all rows as JSON, as a table that is sorted in the browser needs them |
| limit | the same queries on an open connection; no HTTP, no rendering |

Checked: page, API and queries tell the same tenants in the same order; the overview and the queries the same numbers.
"""

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg

from bench.dashboard.serving import served
from bench.dashboard.tenants import fill
from bench.harness.keys import BENCH_KEY
from bench.harness.measure import Sample, ensure_same_work, measure, take_turns
from bench.harness.options import Options
from bench.harness.report import Comparison, Line
from bench.harness.servers import bench_postgres
from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings
from clientmgr.broker.postgres.lag import QUERIES as LAG_QUERIES
from clientmgr.operations.migrations import migrate_database
from clientmgr.operations.nightly_jobs import nightly_work
from clientmgr.tenant_metrics.tenants import (
    SortColumn,
    TenantFilter,
    count_behind,
    count_tenants,
    tenant_page,
    totals,
)
from clientmgr.tenants.registry import count_by_status
from clientmgr_dashboard.operations.overview import COUNT_AT_MOST

AIM_S = 0.2
PER_PAGE = 50
TOLERANCE = 0.01
_LISTED = re.compile(r'<th scope="row"><a href="/tenants/(\d+)">')


@dataclass(frozen=True)
class Question:
    """What somebody asks of the table."""

    what: str
    sort: SortColumn
    order: str = "desc"
    search: str = ""
    page: int = 1

    def parameters(self, per_page: int = PER_PAGE) -> dict[str, str | int]:
        found: dict[str, str | int] = {"sort": self.sort, "order": self.order, "page": self.page, "perPage": per_page}
        return {**found, "search": self.search} if self.search else found


QUESTIONS = (
    Question("the largest", "devices"),
    Question("the least in sync, page 40", "syncDifferenceShare", page=40),
    Question("found by its id", "customerId", "asc", search="1000"),
)


def run(options: Options) -> Iterator[Comparison]:
    yield from compare(options, tenants=200 if options.quick else 10_000)


def compare(options: Options, *, tenants: int) -> Iterator[Comparison]:
    with (
        bench_postgres(options) as server,
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
    ):
        server.create_database("dashboard")
        database = Database(server.url("dashboard"))
        migrate_database(database)
        fill(database, tenants)
        server.settle()
        settings = load_settings(database_url=database.url, data_dir=Path(folder), audit_hash_key=BENCH_KEY)
        with (
            served(settings) as address,
            httpx.Client(base_url=address, timeout=60) as client,
            psycopg.connect(database.url, autocommit=True) as connection,
        ):
            for question in QUESTIONS:
                asked = (
                    question if question.page == 1 or tenants > PER_PAGE * 40 else Question("page 2", "devices", page=2)
                )
                yield _table(asked, client, connection, tenants, options.rounds)
            yield _overview(client, connection, tenants, options.rounds)


def _table(
    question: Question, client: httpx.Client, connection: psycopg.Connection, tenants: int, rounds: int
) -> Comparison:
    def page() -> list[int]:
        return [int(number) for number in _LISTED.findall(_text(client, "/tenants", question.parameters()))]

    def api() -> list[int]:
        return _ids(_text(client, "/api/v1/tenants", question.parameters()))

    def everything() -> list[int]:
        found: list[int] = []
        for number in range(1, tenants // 500 + 2):
            wanted = {**question.parameters(500), "page": number}
            found += _ids(_text(client, "/api/v1/tenants", wanted))
        first = (question.page - 1) * PER_PAGE
        return found[first : first + PER_PAGE]

    def limit() -> list[int]:
        chosen = TenantFilter(TOLERANCE, question.search or None)
        count_tenants(connection, chosen)
        rows = tenant_page(
            connection,
            chosen,
            sort=question.sort,
            descending=question.order == "desc",
            limit=PER_PAGE,
            offset=(question.page - 1) * PER_PAGE,
        )
        return [row.customer_id for row in rows]

    variants = {"ours, the page": page, "ours, the API": api, "everything at once": everything, "limit": limit}
    lines = _take_turns(f"table: {question.what}", variants, rounds)
    title = f"Table of {tenants:,} tenants: {question.what}"
    return Comparison(title, lines, notes=(_aim(lines[0]),))


def _overview(client: httpx.Client, connection: psycopg.Connection, tenants: int, rounds: int) -> Comparison:
    def page() -> list[int]:
        text = _text(client, "/", {})
        return [
            int(number.replace(",", ""))
            for number in re.findall(r"<dt>(?:Tenants|Devices|Orphans)</dt><dd>([\d,]+)", text)
        ]

    def api() -> list[int]:
        found = json.loads(_text(client, "/api/v1/overview", {}))
        return [found["tenants"]["active"], found["totals"]["devices"], found["totals"]["orphans"]]

    def limit() -> list[int]:
        counted = count_by_status(connection)
        found = totals(connection, tolerance=TOLERANCE)
        count_behind(connection)
        nightly_work(connection)
        wanted = {"topic": None, "subscription": None, "at_most": COUNT_AT_MOST}
        for name in ("partition_lag", "set_aside"):
            connection.execute(LAG_QUERIES[name], wanted).fetchall()
        return [counted["active"], found.devices, found.orphans]  # type: ignore[index]

    lines = _take_turns("overview", {"ours, the page": page, "ours, the API": api, "limit": limit}, rounds, pause_s=1.1)
    return Comparison(f"Overview of {tenants:,} tenants", lines, notes=(_aim(lines[0]),))


def _take_turns(
    what: str, variants: dict[str, Callable[[], list[int]]], rounds: int, *, pause_s: float = 0.0
) -> tuple[Line, ...]:
    samples: dict[str, list[Sample]] = {name: [] for name in variants}
    answers: dict[str, object] = {}
    for name, ask in variants.items():  # once unmeasured: connections are opened, templates compiled
        answers[name] = ask()
    ensure_same_work(what, answers)
    for name in take_turns(list(variants), rounds):
        time.sleep(pause_s)
        samples[name].append(measure(variants[name]))
    return tuple(Line(name, tuple(taken)) for name, taken in samples.items())


def _text(client: httpx.Client, path: str, parameters: dict[str, str | int]) -> str:
    answer = client.get(path, params=parameters)
    answer.raise_for_status()
    return answer.text


def _ids(text: str) -> list[int]:
    return [row["customerId"] for row in json.loads(text)["items"]]


def _aim(line: Line) -> str:
    slowest = max(sample.wall_s for sample in line.samples)
    met = "met" if slowest < AIM_S else "missed"
    return f"aim: under {AIM_S * 1000:.0f} ms; the slowest took {slowest * 1000:.0f} ms: {met}"
