"""A backup as docs/operating.md describes it, restored on another server: everything is there, and it goes on."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.contracts import topics
from clientmgr.local.embedded.postgres import EmbeddedPostgres, binaries
from tests.cli.calling import Cli
from tests.conftest import TEST_TUNING

EVENTS = ("load", "--quiet", "--tenants", "7,8", "--seed", "5", "--start-at", "1763248000123")


@pytest.fixture
def another_server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path / "another", tuning=TEST_TUNING)
    server.start()
    yield server
    server.stop()


def run(program: str, *arguments: str | Path, stdin: bytes = b"") -> bytes:
    environment = {**os.environ, "PGOPTIONS": "-c client_min_messages=error"}
    result = subprocess.run(
        [binaries() / program, *arguments], input=stdin, capture_output=True, env=environment, check=False
    )
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


def contents(database: Database) -> dict[str, list[tuple[object, ...]]]:
    """What must be the same on both sides."""
    queries = {
        "tenants": "SELECT customer_id, status, schema_version FROM clientmgr.tenants ORDER BY 1",
        "7": "SELECT * FROM tenant_7.devices ORDER BY application_code, client_id",
        "8": "SELECT * FROM tenant_8.devices ORDER BY application_code, client_id",
        "offsets": "SELECT * FROM clientmgr.consumer_offsets ORDER BY group_id, topic_id, partition_id",
        "log": "SELECT topic_id, c_offset, payload FROM clientmgr.outbox_message_t ORDER BY 1, 2",
        "audit": "SELECT * FROM clientmgr.audit_log ORDER BY customer_id, seq",
    }
    with database.connect(Role.OWNER) as connection:
        return {name: connection.execute(sql.encode()).fetchall() for name, sql in queries.items()}


def unread(cli: Cli) -> int:
    (topic,) = [one for one in cli.ok("topics", "--json").json if one["topic"] == topics.WRITER]
    return sum(subscription["unread"] for subscription in topic["subscriptions"])


def test_a_restored_system_is_whole_and_goes_on(
    database: Database, another_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    before = Cli.on(database, tmp_path)
    before.ok("tenants", "activate", "7", "8")
    before.ok(*EVENTS, "--events", "400")
    before.ok("run", "writer", "--burst")
    # Unread when the backup is taken.
    before.ok(*EVENTS, "--events", "700")
    dump, roles = tmp_path / "clientmgr.dump", tmp_path / "roles.sql"

    run("pg_dump", "--format=custom", f"--file={dump}", database.url)
    roles.write_bytes(run("pg_dumpall", "--roles-only", "--no-role-passwords", f"--dbname={database.url}"))

    # "role postgres already exists" is no reason to stop.
    run("psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=0", another_server.url(), stdin=roles.read_bytes())
    run("pg_restore", "--exit-on-error", f"--dbname={another_server.url()}", dump)
    restored = Database(another_server.url())
    after = Cli.on(restored, tmp_path)
    assert "nothing to apply" in after.ok("migrate").out

    assert contents(restored) == contents(database)
    assert after.ok("audit", "verify", "--json").json["intact"] is True
    assert len(contents(restored)["7"]) > 10

    assert unread(after) > 0
    after.ok("run", "writer", "--burst")
    assert unread(after) == 0
    assert len(contents(restored)["7"]) > len(contents(database)["7"])
    # What `clientmgr migrate` alone can give back: the right to make schemas in this database.
    after.ok("tenants", "activate", "9")
