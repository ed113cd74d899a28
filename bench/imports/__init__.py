"""`clientmgr devices import` beside COPY: the same rows into the same tables, with all their indexes.

| variant | what it does |
|---|---|
| ours, CSV / JSON lines / Parquet | reads the file, checks cells, hashes, looks what is known; 5,000 rows a commit |
| limit | COPY in binary of the rows that ours left, prebuilt in memory: devices, links and claims, a transaction |

Checked: the tenant's devices, links and claims are the same after each turn (times of writing left out).
"""

import asyncio
import csv
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.measure import Sample, ensure_same_work, measure, take_turns
from bench.harness.options import Options
from bench.harness.report import Comparison, Line, speed_ratio
from bench.harness.servers import BenchPostgres, bench_postgres
from bench.writer.databases import START_AT, Source, settings_for, with_tenants
from clientmgr.base.customer_ids import quoted_schema
from clientmgr.base.database import Database
from clientmgr.devices.imports.importer import DeviceImport, ImportOptions

AIM = 0.6
TABLES = ("devices", "contact_links", "push_token_claims")
LIMIT = "limit: COPY of the same rows"


def run(options: Options) -> Iterator[Comparison]:
    yield from compare(options, 10_000 if options.quick else 100_000)


def compare(options: Options, count: int) -> Iterator[Comparison]:
    with (
        bench_postgres(options) as server,
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
    ):
        source = with_tenants(server, "imports", 1)
        files = _files(Path(folder), count)
        prebuilt = _prebuilt(source, files["CSV"])
        variants = [*(f"ours, {form}" for form in files), LIMIT]
        samples: dict[str, list[Sample]] = {name: [] for name in variants}
        left: dict[str, object] = {}
        for turn, variant in enumerate(take_turns(variants, max(options.rounds // 2, 1))):
            url = source.copy(f"turn_{turn}")  # a name of its own: the last one's connections may still be ending
            server.settle()
            if variant == LIMIT:
                samples[variant].append(measure(lambda url=url: _copy(url, prebuilt), server))  # type: ignore[misc]
            else:
                samples[variant].append(_timed_import(server, source, url, files[variant.removeprefix("ours, ")]))
            left[variant] = source.digest(url)
        ensure_same_work("import of devices", left)
        lines = tuple(Line(name, tuple(of_variant)) for name, of_variant in samples.items())
        ratios = {line.variant: speed_ratio(line, lines[-1]) for line in lines[:-1]}
        notes = [f"{name}: {ratio:.0%} of COPY (aim: {AIM:.0%})" for name, ratio in ratios.items()]
        yield Comparison(f"import of {count:,} devices into one tenant", lines, count, "devices", tuple(notes))


def _timed_import(server: BenchPostgres, source: Source, url: str, file: Path) -> Sample:
    work = DeviceImport(settings_for(url), ImportOptions(file, customer_id=source.tenants[0]))
    return measure(lambda: asyncio.run(work.run(Database(url))), server)


def _prebuilt(source: Source, file: Path) -> dict[str, bytes]:
    """What COPY is given: the tables after an import, in COPY's binary format."""
    url = source.copy("rehearsal")
    work = DeviceImport(settings_for(url), ImportOptions(file, customer_id=source.tenants[0]))
    asyncio.run(work.run(Database(url)))
    schema = quoted_schema(source.tenants[0])
    with psycopg.connect(url) as connection:
        found = {}
        for table in TABLES:
            with (
                connection.cursor() as cursor,
                cursor.copy(f"COPY {schema}.{table} TO STDOUT (FORMAT binary)".encode()) as copy,
            ):
                found[f"{schema}.{table}"] = b"".join(copy)
    return found


def _copy(url: str, prebuilt: dict[str, bytes]) -> None:
    with psycopg.connect(url) as connection:
        for table, data in prebuilt.items():
            with (
                connection.cursor() as cursor,
                cursor.copy(f"COPY {table} FROM STDIN (FORMAT binary)".encode()) as copy,
            ):
                copy.write(data)


def _files(folder: Path, count: int) -> dict[str, Path]:
    rows = list(_rows(count))
    files = {
        "CSV": folder / "devices.csv",
        "JSON lines": folder / "devices.ndjson",
        "Parquet": folder / "devices.parquet",
    }
    with files["CSV"].open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "attributes": json.dumps(row["attributes"])} for row in rows)
    files["JSON lines"].write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = pa.Table.from_pylist([{**row, "attributes": json.dumps(row["attributes"])} for row in rows])
    pq.write_table(table, files["Parquet"])
    return files


def _rows(count: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(19)  # the same rows in every run
    for number in range(count):
        yield {
            "applicationCode": f"EMS{number % 3:02d}-C3FD3",
            "clientId": f"{chance.getrandbits(128):032x}",
            "hardwareId": f"{chance.getrandbits(64):016x}",
            "contactId": number // 2 + 1,
            "platform": chance.choice(["ios", "android"]),
            "applicationVersion": f"4.{chance.randrange(20)}.{chance.randrange(9)}",
            "osVersion": str(chance.randrange(12, 19)),
            "deviceModel": chance.choice(["iPhone15,2", "Pixel 8", "SM-G991B"]),
            "sdkVersion": "3.2.1",
            "language": chance.choice(["en-GB", "de-CH", "fr", "hu"]),
            "timezone": "Europe/Vienna",
            "pushEnabled": True,
            "pushToken": f"{chance.getrandbits(512):0128x}",
            "pushTokenKind": "fcm_token",
            "attributes": {"tier": chance.choice(["gold", "silver"]), "visits": number % 100},
            "occurredAt": START_AT + number,
        }
