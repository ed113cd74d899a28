"""`clientmgr devices`: what support people see of devices, what stays hidden from them, and what is recorded."""

import csv
import io
import json
import stat
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clientmgr.audit.log import AuditLogger
from clientmgr.base.database import Database, Role
from clientmgr.base.migrations import ensure_database_grants
from clientmgr.contracts import topics
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from tests.cli.calling import Cli
from tests.keys import TEST_KEY

T0 = 1_763_248_000_000
APP = "EMS11-C3FD3"
TOKEN = "7d1c0f3b5a9e2468ace013579bdf7d1c0f3b5a9e2468ace013579bdf2468ace0"
ENDPOINT = "https://push.example.com/wpush/v2/gAAAAABmQ0nXg1n5"
KEYS = {"p256dh": "BOr3xT5v7aHqz0uYk2mPq9sLw4dQe8rVtYuIoPaSdFg", "auth": "k8JV6sjdbhAi1n3_LDBLvA"}


def event(name: str, client: str, at: int, *, application: str = APP, **payload: Any) -> dict[str, Any]:
    return {
        "eventId": f"{name}-{client}-{at}",
        "eventType": f"client.{name}",
        "customerId": 7,
        "applicationCode": application,
        "clientId": client,
        "occurredAt": T0 + at,
        "payload": payload,
    }


HISTORY = [
    event("registered", "phone", 1000, platform="ios", language="fr", hardwareId="hw-1", pushSettings={"a": [1, "é"]}),
    event("pushTokenSet", "phone", 2000, kind="apns", pushToken=TOKEN),
    event("contactLinked", "phone", 3000, contactId=42),
    event("updated", "phone", 4000, language="de"),
    event("registered", "phone", 1500, application="OTHER", platform="android"),
    event("registered", "old phone", 500, platform="ios", hardwareId="hw-1"),
    event("pushTokenSet", "old phone", 600, kind="apns", pushToken=TOKEN),
    event("pushTokenSet", "browser", 700, kind="webpush", webPush={"endpoint": ENDPOINT, "keys": KEYS}),
    event("contactLinked", "browser", 800, contactId=42),
    event("contactUnlinked", "browser", 900),
    event("registered", "gone", 100, platform="ios"),
    event("deleted", "gone", 200),
]


@pytest.fixture(scope="module")
def with_devices(postgres_server: EmbeddedPostgres, _template: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with a customer 7 and a few devices, come about as they do: by messages that the writer handled."""
    name = copy_of(postgres_server, _template)
    cli = Cli.on(Database(postgres_server.url(name)), tmp_path_factory.mktemp("devices"))
    cli.ok("tenants", "activate", "7")
    handle(cli, topics.WRITER, "writer", *HISTORY)
    return name


@pytest.fixture
def database(postgres_server: EmbeddedPostgres, with_devices: str) -> Database:
    return Database(postgres_server.url(copy_of(postgres_server, with_devices)))


@pytest.fixture
def cli(database: Database, tmp_path: Path) -> Cli:
    return Cli.on(database, tmp_path)


def copy_of(server: EmbeddedPostgres, template: str) -> str:
    """A new database like `template`; it goes with the server at the end of the session."""
    name = f"devices_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    with Database(server.url(name)).connect(Role.OWNER) as connection:
        ensure_database_grants(connection)
    return name


def handle(cli: Cli, topic: str, daemon: str, *messages: dict[str, Any]) -> None:
    lines = "\n".join(json.dumps(message) for message in messages)
    cli.ok("publish", topic, "--create", "-", stdin=lines.encode())
    cli.ok("run", daemon, "--burst")


def show(cli: Cli, client: str, *options: str) -> Any:
    (device,) = cli.ok("devices", "show", "-c", "7", "--client", client, "--application", APP, "--json", *options).json
    return device


def found(cli: Cli, *options: str) -> list[str]:
    devices = cli.ok("devices", "find", "--customer", "7", *options, "--json").json
    return [f"{device['application_code']}/{device['client_id']}" for device in devices]


def reveals(cli: Cli) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = cli.ok("audit", "list", "-c", "7", "--action", "device.reveal", "--json").json
    return list(reversed(rows))


def test_each_part_of_a_device_is_shown_with_the_time_it_was_set(cli: Cli) -> None:
    phone = show(cli, "phone")
    assert phone["info"]["language"] == {"value": "de", "set_at": "2025-11-15T23:06:44+00:00"}
    assert phone["info"]["platform"] == {"value": "ios", "set_at": "2025-11-15T23:06:41+00:00"}
    assert phone["info"]["os_version"] == {"value": None, "set_at": None}
    assert phone["contact"]["contact_id"] == 42
    assert phone["contact"]["set_at"] == "2025-11-15T23:06:43+00:00"
    assert (phone["push_token"]["status"], phone["push_token"]["kind"]) == ("valid", "apns")
    assert phone["notes"] == []


def test_people_read_it_as_lines(cli: Cli) -> None:
    out = cli.ok("devices", "show", "-c", "7", "--client", "phone").out
    assert f"customer 7, application {APP}, client phone" in out
    assert "customer 7, application OTHER, client phone" in out
    assert "linked to contact 42 at 2025-11-15 23:06:43 UTC" in out
    assert "it has not set a push token" in out


def test_a_superseded_token_names_who_has_it_now(cli: Cli) -> None:
    old = show(cli, "old phone")
    assert (old["push_token"]["status"], old["push_token"]["claimed_by"]) == ("superseded", "phone")
    assert "superseded: client phone claimed its push token at 2025-11-15 23:06:42 UTC" in " ".join(old["notes"])


def test_what_is_left_of_a_deleted_device_is_shown(cli: Cli) -> None:
    gone = show(cli, "gone")
    assert not gone["exists"]
    assert gone["deleted_at"] == "2025-11-15T23:06:40.200000+00:00"
    assert gone["notes"] == [
        "deleted: events up to 2025-11-15 23:06:40 UTC change nothing, a later one would bring it back"
    ]
    assert gone["notes"][0] in cli.ok("devices", "show", "-c", "7", "--client", "gone").out


def test_a_device_that_came_back_is_shown_with_its_deletion(cli: Cli) -> None:
    handle(cli, topics.WRITER, "writer", event("registered", "gone", 9000, platform="web"))
    gone = show(cli, "gone")
    assert gone["exists"]
    assert "it was deleted at 2025-11-15 23:06:40 UTC; what is known of it came later" in gone["notes"]


def test_the_deletion_of_a_contact_explains_what_became_of_its_devices(cli: Cli) -> None:
    deletion = {"eventId": "d", "customerId": 7, "contactId": 42, "deletedAt": T0 + 10_000}
    handle(cli, topics.CONTACT_DELETION, "contact-deletion", deletion)
    notes = " ".join(show(cli, "phone")["notes"])
    assert "a contact to which it was linked at" in notes
    assert "was deleted at 2025-11-15 23:06:50 UTC" in notes
    out = cli.ok("devices", "find", "--customer", "7", "--contact", "42").out
    assert "contact 42 was deleted at 2025-11-15 23:06:50 UTC, published by cli:" in out
    assert ", carried out by contact-deletion (audit row " in out


def test_an_unlinked_device_says_since_when(cli: Cli) -> None:
    browser = show(cli, "browser")
    assert browser["contact"]["orphaned_since"] is not None
    assert "it was unlinked from its contact at 2025-11-15 23:06:40 UTC" in browser["notes"]
    assert [link["contact_id"] for link in browser["contact_links"]] == [42]


def test_an_unknown_device_is_an_error_of_its_own(cli: Cli) -> None:
    result = cli("devices", "show", "-c", "7", "--client", "nobody")
    assert result.code == 1
    assert "customer 7 has no device nobody, and no trace of a deleted one" in result.err


def test_devices_are_found_by_contact_client_token_endpoint_and_hardware(cli: Cli) -> None:
    assert found(cli, "--contact", "42") == [f"{APP}/phone"]
    assert found(cli, "--client", "phone") == [f"{APP}/phone", "OTHER/phone"]
    assert found(cli, "--token", TOKEN) == [f"{APP}/phone"]
    assert found(cli, "--token", ENDPOINT) == [f"{APP}/browser"]
    assert found(cli, "--hardware", "hw-1") == [f"{APP}/old phone", f"{APP}/phone"]
    assert found(cli, "--token", "unknown") == []


def test_a_token_that_was_cleared_finds_nobody(cli: Cli) -> None:
    handle(cli, topics.WRITER, "writer", event("pushTokenCleared", "phone", 9000))
    assert found(cli, "--token", TOKEN) == []


def test_a_limit_says_that_there_may_be_more(cli: Cli) -> None:
    result = cli.ok("devices", "find", "-c", "7", "--client", "phone", "--limit", "1")
    assert "there may be more" in result.err


@pytest.mark.parametrize("options", [[], ["--contact", "1", "--client", "x"]])
def test_one_thing_is_looked_for_at_a_time(cli: Cli, options: list[str]) -> None:
    result = cli("devices", "find", "-c", "7", *options)
    assert result.code == 2
    assert "--contact, --client, --token, --hardware: expected one of them" in result.err


@pytest.mark.parametrize("contact", ["x", "0", "-1", "1.5", "٣", str(2**63)])
def test_a_contact_that_can_not_be_is_refused(cli: Cli, contact: str) -> None:
    result = cli("devices", "find", "-c", "7", "--contact", contact)
    assert result.code == 2
    assert "--contact: expected a positive integer" in result.err


@pytest.mark.parametrize("command", [["show", "--client", "x"], ["find", "--client", "x"], ["export"]])
def test_a_customer_that_is_none_is_told_apart_from_one_that_can_not_be(cli: Cli, command: list[str]) -> None:
    name, *options = command
    assert cli("devices", name, "--customer", "7; drop table x", *options).code == 2
    never = cli("devices", name, "--customer", "8", *options)
    assert (never.code, "customer 8 was never activated" in never.err) == (1, True)
    cli.ok("tenants", "delete", "7", "--yes")
    deleted = cli("devices", name, "--customer", "7", *options)
    assert (deleted.code, "customer 7 is deleted" in deleted.err) == (1, True)


@pytest.mark.parametrize(
    "command",
    [
        ["show", "--client", "phone"],
        ["show", "--client", "phone", "--json"],
        ["show", "--client", "browser", "--json"],
        ["find", "--token", TOKEN],
        ["find", "--token", ENDPOINT, "--json"],
        ["export"],
        ["export", "--format", "ndjson"],
    ],
)
def test_tokens_and_keys_are_masked_unless_they_are_to_be_revealed(cli: Cli, command: list[str]) -> None:
    secrets = [TOKEN, ENDPOINT, *KEYS.values()]
    masked = cli.ok("devices", *command, "-c", "7").out
    assert not [secret for secret in secrets if secret in masked]
    assert reveals(cli) == []
    revealed = cli.ok("devices", *command, "-c", "7", "--reveal").out
    assert [secret for secret in secrets if secret in revealed]
    assert reveals(cli)


def test_a_masked_token_can_still_be_told_from_another(cli: Cli) -> None:
    assert show(cli, "phone")["push_token"]["token"] == "7d1c0f…ace0"
    assert show(cli, "browser")["push_token"]["web_push"]["keys"]["auth"] == "k8JV6s…BLvA"


def test_a_reveal_is_recorded_with_who_and_whom_but_neither_contact_nor_client_can_be_read(cli: Cli) -> None:
    cli.ok("devices", "find", "-c", "7", "--contact", "42", "--reveal")
    (entry,) = reveals(cli)
    assert entry["actor"].startswith("cli:")
    assert (entry["outcome"], entry["rows_affected"]) == ("revealed", 1)
    assert entry["contact_hash"] == AuditLogger(TEST_KEY.encode()).contact_hash(7, 42)
    assert entry["details"]["command"] == "find"
    assert "phone" not in json.dumps(entry)
    cli.ok("audit", "verify")


def test_nothing_is_revealed_where_it_can_not_be_recorded(cli: Cli, database: Database) -> None:
    with database.connect(Role.OWNER) as connection:
        connection.execute("REVOKE INSERT ON clientmgr.audit_log FROM clientmgr_writer")
    for command in (["show", "--client", "phone"], ["find", "--client", "phone"], ["export"]):
        result = cli("devices", *command, "-c", "7", "--reveal")
        assert result.code == 1
        assert result.out == ""


def test_an_export_that_reveals_is_recorded_before_it_begins_and_when_it_is_done(cli: Cli) -> None:
    cli.ok("devices", "export", "-c", "7", "--reveal")
    assert [(entry["outcome"], entry["rows_affected"]) for entry in reveals(cli)] == [("started", None), ("done", 4)]


def test_csv_has_a_header_and_a_line_for_each_device(cli: Cli) -> None:
    result = cli.ok("devices", "export", "--customer", "7")
    assert "4 devices exported" in result.err
    rows = {(row["application_code"], row["client_id"]): row for row in csv.DictReader(io.StringIO(result.out))}
    assert set(rows) == {(APP, "phone"), ("OTHER", "phone"), (APP, "old phone"), (APP, "browser")}
    phone = rows[APP, "phone"]
    assert (phone["contact_id"], phone["language"], phone["push_token"]) == ("42", "de", "7d1c0f…ace0")
    assert json.loads(phone["push_settings"]) == {"a": [1, "é"]}
    assert rows[APP, "browser"]["web_push_auth"] == "k8JV6s…BLvA"
    assert rows[APP, "browser"]["contact_id"] == ""


def test_ndjson_is_an_object_a_line_with_json_inside(cli: Cli) -> None:
    lines = cli.ok("devices", "export", "--customer", "7", "--format", "ndjson").json_lines
    (phone,) = [line for line in lines if line["client_id"] == "phone" and line["application_code"] == APP]
    assert (phone["contact_id"], phone["push_settings"], phone["push_enabled"]) == (42, {"a": [1, "é"]}, None)


def test_an_exported_file_is_its_owners_alone_and_replaces_what_was_there(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "devices.csv"
    file.write_text("old")
    assert cli.ok("devices", "export", "-c", "7", "--output", str(file)).out == ""
    assert len(file.read_text().splitlines()) == 5
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.glob("*devices*")] == ["devices.csv"]


def test_an_export_that_fails_leaves_no_file(cli: Cli, tmp_path: Path) -> None:
    result = cli("devices", "export", "-c", "8", "--output", str(tmp_path / "devices.csv"))
    assert result.code == 1
    assert list(tmp_path.glob("*devices*")) == []


def test_a_large_export_comes_whole_through_the_cursor(cli: Cli, database: Database) -> None:
    with database.connect(Role.WRITER) as connection:
        connection.execute(
            "INSERT INTO tenant_7.devices (application_code, client_id)"
            " SELECT 'BULK', n::text FROM generate_series(1, 12000) AS n"
        )
    rows = cli.ok("devices", "export", "-c", "7", "--format", "ndjson").json_lines
    assert len({row["client_id"] for row in rows if row["application_code"] == "BULK"}) == 12_000
