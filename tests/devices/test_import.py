"""`clientmgr devices import`: every form, rejected rows, dry runs, kills, and live events in between."""

import asyncio
import csv
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.devices.imports import importer
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.cli.calling import Cli
from tests.devices.histories import APPLICATIONS, CLIENTS, CONTACTS, LATEST, Happening, Model, without_late_links
from tests.devices.test_store import arrive, devices
from tests.waiting import eventually

COLUMNS = (
    "application_code, client_id, hardware_id, contact_id, platform, provider, language, push_enabled, push_settings,"
    " push_token, push_token_kind, push_token_status, web_push, attributes, orphaned_since, last_seen_at"
)
ROW: dict[str, Any] = {
    "applicationCode": "A",
    "clientId": "c1",
    "contactId": 42,
    "platform": "ios",
    "language": "de-CH",
    "pushEnabled": True,
    "pushToken": "t1",
    "pushTokenKind": "apns",
    "attributes": {"tier": "gold", "n": 1.5},
    "occurredAt": 1_700_000_000_123,
}


@pytest.fixture
def cli(database: Database, tenant: CustomerId, tmp_path: Path) -> Cli:
    return Cli.on(database, tmp_path / "data")


def rows_of(database: Database, customer: int = 7, columns: str = COLUMNS) -> list[tuple[Any, ...]]:
    with database.connect(Role.OWNER) as connection:
        query = f'SELECT {columns} FROM "tenant_{customer}".devices ORDER BY application_code, client_id'
        return connection.execute(query.encode()).fetchall()


def tables_of(database: Database, customer: int = 7) -> list[list[tuple[Any, ...]]]:
    """All that matters of a tenant's tables, but for the clocks of the writing."""
    found = [rows_of(database, customer, f"{COLUMNS}, info_versions, contact_version, push_token_version, device_hash")]
    with database.connect(Role.OWNER) as connection:
        for table in ("contact_links", "push_token_claims"):
            found.append(
                connection.execute(f'SELECT * FROM "tenant_{customer}".{table} ORDER BY 1, 2, 3'.encode()).fetchall()
            )
    return found


def written(file: Path, rows: list[dict[str, Any]]) -> str:
    """The rows in the form that the file's name says."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    as_text = [
        {name: json.dumps(value) if isinstance(value, dict) else value for name, value in row.items()} for row in rows
    ]
    match file.suffix:
        case ".csv":
            with file.open("w", newline="") as stream:
                writer = csv.DictWriter(stream, columns)
                writer.writeheader()
                writer.writerows(as_text)
        case ".ndjson":
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case _:
            pq.write_table(pa.Table.from_pylist(as_text), file)
    return str(file)


def some_rows(count: int) -> list[dict[str, Any]]:
    return [
        {**ROW, "clientId": f"c{n}", "contactId": n // 2 + 1, "pushToken": f"t{n}", "occurredAt": 1_700_000_000_000 + n}
        for n in range(count)
    ]


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet"])
def test_a_row_becomes_what_events_of_its_time_would_make(
    cli: Cli, database: Database, tmp_path: Path, form: str
) -> None:
    file = written(tmp_path / f"devices.{form}", [ROW, {**ROW, "clientId": "c2", "contactId": None, "pushToken": "t2"}])
    report = cli.ok("devices", "import", file, "--customer", "7", "--json").json
    assert (report["rows"], report["imported"], report["rejected"]) == (2, 2, 0)
    by_copy = tables_of(database)

    info = {name: ROW[name] for name in ("platform", "language", "pushEnabled", "attributes")}
    with database.connect(Role.OWNER) as connection:
        for table in ("devices", "contact_links", "push_token_claims"):
            connection.execute(f'DELETE FROM "tenant_7".{table}'.encode())
    happened = [
        Happening(kind, 1_700_000_000_123, "A", client, json.dumps(payload))
        for client, token in (("c1", "t1"), ("c2", "t2"))
        for kind, payload in (
            ("client.registered", info),
            ("client.pushTokenSet", {"kind": "apns", "pushToken": token}),
            ("client.contactLinked", {"contactId": 42}),
        )
        if kind != "client.contactLinked" or client == "c1"
    ]
    asyncio.run(arrive(database, CustomerId(7), happened))
    assert tables_of(database) == by_copy


def test_rows_that_can_not_be_imported_are_written_apart_with_line_and_reason(
    cli: Cli, database: Database, tmp_path: Path
) -> None:
    bad = [
        {**ROW, "clientId": "c2", "contactId": "x", "language": "=1+1", "@note": "-1+1"},
        {**ROW, "clientId": "c3", "pushTokenKind": "pigeon"},
    ]
    file = written(tmp_path / "devices.csv", [ROW, *bad, {**ROW, "clientId": "c4", "pushToken": ""}])
    with Path(file).open("a") as stream:
        stream.write("too,few\n\n")
    result = cli("devices", "import", file, "-c", "7", "--map", "@note=", "--json")
    assert (result.code, result.json["imported"], result.json["rejected"]) == (1, 2, 3)
    assert result.json["reasons"] == {"contactId": 1, "pushTokenKind": 1, "row": 1}
    rejected = Path(result.json["rejectedFile"])
    assert rejected.stat().st_mode & 0o077 == 0
    with rejected.open(newline="") as stream:
        found = list(csv.reader(stream))
    assert [row[0] for row in found[1:]] == ["3", "4", "6"]
    assert "expected an integer" in found[1][1]
    assert ("'@note" in found[0], "'=1+1" in found[1], "'-1+1" in found[1]) == (True, True, True), "no formulas"
    assert [row[1] for row in rows_of(database)] == ["c1", "c4"]

    # Mended, the file of rejected rows is imported as it stands.
    text = rejected.read_text().replace(",x,", ",43,").replace("pigeon", "fcm_fid").rsplit('6,"row', 1)[0]
    mended = tmp_path / "mended.csv"
    mended.write_text(text)
    cli.ok("devices", "import", str(mended), "-c", "7", "--map", "@note=")
    assert [row[1] for row in rows_of(database)] == ["c1", "c2", "c3", "c4"]


def test_lines_that_are_no_json_are_rejected_alone(cli: Cli, database: Database, tmp_path: Path) -> None:
    file = tmp_path / "devices.ndjson"
    file.write_bytes(
        json.dumps(ROW).encode() + b'\n{"half\n[1]\n\xff\xfe\n\n' + json.dumps({**ROW, "extra": 1}).encode()
    )
    result = cli("devices", "import", str(file), "-c", "7", "--json")
    assert (result.code, result.json["reasons"]) == (1, {"row": 3, "extra": 1})
    rejected = [json.loads(line) for line in Path(result.json["rejectedFile"]).read_bytes().splitlines()]
    assert [one["rejectedLine"] for one in rejected] == [2, 3, 4, 6]
    assert len(rows_of(database)) == 1


def test_a_dry_run_reports_by_field_and_writes_nothing(cli: Cli, database: Database, tmp_path: Path) -> None:
    file = written(tmp_path / "devices.csv", [ROW, {**ROW, "clientId": "c2", "contactId": "x"}])
    before = sorted(path.name for path in tmp_path.iterdir())
    result = cli("devices", "import", file, "-c", "7", "--dry-run")
    assert result.code == 1
    assert "1 of 2 rows can be imported" in result.out
    assert "1 rejected because of contactId" in result.out
    assert rows_of(database) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_columns_are_mapped_and_unknown_ones_refused_before_anything_is_read(
    cli: Cli, database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "devices.csv"
    file.write_text("id;locale;tier;notes\nc1;de;gold;x\n")
    options = ("devices", "import", str(file), "-c", "7", "--application", "A", "--delimiter", ";")
    refused = cli(*options, "--map", "id=clientId", "--map", "locale=language")
    assert (refused.code, "column tier" in refused.err) == (2, True)
    assert cli(*options, "--map", "nosuch=language").code == 2
    assert cli(*options, "--map", "id=nosuch").code == 2
    mapped = ("--map", "id=clientId", "--map", "locale=language", "--map", "tier=attributes.tier", "--map", "notes=")
    cli.ok(*options, *mapped, "--occurred-at", "2024-01-01T00:00:00Z")
    (row,) = rows_of(database, columns="client_id, language, attributes, last_seen_version")
    assert row == ("c1", "de", {"tier": "gold"}, 1_704_067_200_000)


def test_each_row_may_name_its_customer_and_one_that_is_none_costs_only_its_rows(
    cli: Cli, database: Database, settings_for: Callable[[Database], Settings], tmp_path: Path
) -> None:
    TenantSchemaManager(database, settings_for(database)).activate([CustomerId(8)], actor="test")
    rows = [{**ROW, "customerId": customer, "clientId": f"of-{customer}"} for customer in (7, 8, 4711, 8)]
    result = cli("devices", "import", written(tmp_path / "all.parquet", rows), "--json")
    assert (result.code, result.json["imported"], result.json["reasons"]) == (1, 3, {"customerId": 1})
    assert [len(rows_of(database, customer)) for customer in (7, 8)] == [1, 1]
    assert cli("devices", "import", written(tmp_path / "none.ndjson", [ROW]), "-c", "4711").code == 1


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet"])
def test_an_export_is_imported_as_it_was(cli: Cli, database: Database, tmp_path: Path, form: str) -> None:
    web = {"webPush": {"endpoint": "https://push/1", "keys": {"p256dh": "p", "auth": "a"}}, "pushTokenKind": "webpush"}
    odd = {
        "language": "=1+1",
        "hardwareId": "tab\tnew\nline \\N 'x'",
        "attributes": {"emoji": "🙂", "deep": [{"a": None}]},
    }
    rows = [
        ROW,
        {**ROW, "clientId": "c2", "contactId": None, "orphanedSince": 1_600_000_000_000, "pushToken": "t2",
         "pushTokenStatus": "invalid"},
        {"applicationCode": "A", "clientId": "bare", "occurredAt": 1_700_000_000_001},
        {"applicationCode": "B", "clientId": "web", "platform": "web", "occurredAt": 1_700_000_000_002, **web, **odd},
    ]  # fmt: skip
    cli.ok("devices", "import", written(tmp_path / "first.ndjson", rows), "-c", "7")
    before = rows_of(database)
    assert [row[11] for row in before] == ["none", "valid", "invalid", "valid"]
    exported = tmp_path / f"exported.{form}"
    cli.ok("devices", "export", "-c", "7", "--reveal", "-o", str(exported))
    assert form != "csv" or ",'=1+1," in exported.read_text(), "no formulas"
    with database.connect(Role.OWNER) as connection:
        for table in ("devices", "contact_links", "push_token_claims", "push_token_verdicts"):
            connection.execute(f'DELETE FROM "tenant_7".{table}'.encode())
    cli.ok("devices", "import", str(exported), "-c", "7")
    assert rows_of(database) == before
    cli.ok("devices", "import", str(exported), "-c", "7")
    assert rows_of(database) == before, "twice changes nothing"


def test_masked_tokens_of_an_export_are_never_imported(cli: Cli, database: Database, tmp_path: Path) -> None:
    cli.ok("devices", "import", written(tmp_path / "first.ndjson", [ROW]), "-c", "7")
    exported = tmp_path / "exported.csv"
    cli.ok("devices", "export", "-c", "7", "-o", str(exported))
    result = cli("devices", "import", str(exported), "-c", "7", "--json")
    assert (result.code, result.json["reasons"]) == (1, {"pushToken": 1})


def test_what_postgresql_refuses_costs_only_its_row(
    cli: Cli, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.connect(Role.OWNER) as connection:
        connection.execute("""ALTER TABLE "tenant_7".devices ADD CHECK (language <> 'xx')""")
    rows = [{**row, "language": "xx" if number in (3, 40) else "en"} for number, row in enumerate(some_rows(50))]
    result = cli("devices", "import", written(tmp_path / "devices.ndjson", rows), "-c", "7", "--json")
    assert (result.code, result.json["imported"], result.json["reasons"]) == (1, 48, {"row": 2})
    assert len(rows_of(database)) == 48


def test_an_import_is_audited(cli: Cli, tmp_path: Path) -> None:
    cli.ok("devices", "import", written(tmp_path / "devices.ndjson", [ROW]), "-c", "7")
    audited = [row for row in cli.ok("audit", "list", "-c", "7", "--json").json if row["action"] == "devices.import"]
    assert [(row["outcome"], row["rows_affected"]) for row in audited] == [("done", 1)]


def test_an_import_that_was_killed_goes_on_where_it_was(
    cli: Cli, database: Database, settings_for: Callable[[Database], Settings], tmp_path: Path
) -> None:
    TenantSchemaManager(database, settings_for(database)).activate([CustomerId(8)], actor="test")
    rows = [{**row, "contactId": "bad"} if number % 997 == 0 else row for number, row in enumerate(some_rows(12_000))]
    file = Path(written(tmp_path / "devices.csv", rows))
    record = file.with_name("devices.csv.import")
    whole = Path(written(tmp_path / "whole.csv", rows))
    assert cli("devices", "import", str(whole), "-c", "8").code == 1

    killed = 0
    for _ in range(10):
        process = subprocess.Popen(
            [sys.executable, "-m", "clientmgr", "devices", "import", str(file), "-c", "7"],
            env={**os.environ, **cli.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        done = _rows_done(record)
        eventually(partial(_has_gone_on, process, record, done), "another portion is written", within_s=300)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not record.exists():
            break
        killed += 1
    assert 0 < killed < 10
    assert rows_of(database, 7) == rows_of(database, 8)
    assert (
        file.with_name("devices.csv.rejected.csv").read_text() == whole.with_name("whole.csv.rejected.csv").read_text()
    )
    assert not record.exists()


def _has_gone_on(process: subprocess.Popen[bytes], record: Path, done: int) -> bool:
    return process.poll() is not None or _rows_done(record) > done


def _rows_done(record: Path) -> int:
    try:
        return int(json.loads(record.read_text())["totals"]["rows"])
    except (OSError, ValueError):
        return 0


def test_another_file_or_other_options_begin_anew(cli: Cli, database: Database, tmp_path: Path) -> None:
    file = Path(written(tmp_path / "devices.ndjson", some_rows(3)))
    record = file.with_name("devices.ndjson.import")
    record.write_text(json.dumps({"digest": "other", "options": {}, "version": 1, "totals": {"rows": 2}}))
    assert cli.ok("devices", "import", str(file), "-c", "7", "--json").json["continuedAfter"] == 0
    assert len(rows_of(database)) == 3


@pytest.mark.parametrize("seed", range(6))
def test_an_import_among_live_events_leaves_what_the_rules_say(
    cli: Cli, database: Database, tenant: CustomerId, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shuffled events, deletions and verdicts before and after an import, rows of which are told by events as well."""
    monkeypatch.setattr(importer, "ROWS_A_PORTION", 3)
    chance = random.Random(seed)
    rows, told = [], []
    for _ in range(12):
        at, application, client = chance.randint(1, LATEST), chance.choice(APPLICATIONS), chance.choice(CLIENTS)
        info = {"language": chance.choice(["en", "fr"]), "pushEnabled": chance.random() < 0.5}
        token, contact = chance.choice(["t1", "t2", None]), chance.choice([*CONTACTS, None])
        row = {"applicationCode": application, "clientId": client, "occurredAt": at, **info, "contactId": contact}
        rows.append({**row, "pushToken": token, "pushTokenKind": "fcm_token" if token else None})
        told.append(Happening("client.registered", at, application, client, json.dumps(info, sort_keys=True)))
        if token:
            payload = json.dumps({"kind": "fcm_token", "pushToken": token}, sort_keys=True)
            told.append(Happening("client.pushTokenSet", at, application, client, payload))
        if contact:
            told.append(Happening("client.contactLinked", at, application, client, json.dumps({"contactId": contact})))
    live = [
        Happening("client.deleted", chance.randint(1, LATEST), chance.choice(APPLICATIONS), chance.choice(CLIENTS)),
        Happening(
            "client.contactUnlinked", chance.randint(1, LATEST), chance.choice(APPLICATIONS), chance.choice(CLIENTS)
        ),
        Happening(
            "token.verdict", chance.randint(1, LATEST), "A", "c1", json.dumps({"pushToken": "t1", "status": "invalid"})
        ),
        Happening("client.contactMerged", LATEST, payload=json.dumps({"fromContactId": 41, "intoContactId": 43})),
        *chance.sample(told, 8),
    ]
    chance.shuffle(live)
    middle = chance.randint(0, len(live))
    deleted = Happening("contact.deleted", LATEST, payload=json.dumps({"contactId": 42}))
    asyncio.run(arrive(database, tenant, live[:middle]))
    file = written(tmp_path / "devices.ndjson", rows)
    for _ in range(2):
        cli.ok("devices", "import", file, "-c", "7")
    asyncio.run(arrive(database, tenant, live[middle:]))
    asyncio.run(arrive(database, tenant, [deleted]))
    history = without_late_links([*live, *told, deleted])
    assert devices(database, tenant) == Model(history).devices
