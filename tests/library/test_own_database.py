"""A library user's own database: what is made there, as whom the broker acts, and what it says when it may not."""

import asyncio
import re

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from clientmgr.audit.log import PLATFORM, AuditLogger, chain_length
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import SettingsError
from clientmgr.broker import (
    Batch,
    InvalidInputError,
    LogTablesError,
    Message,
    SyncBroker,
    open_broker,
    open_broker_sync,
)
from clientmgr.operations.migrations import migrate_database
from tests.keys import TEST_KEY

ORDER = Message(b'{"order": 7}', tenant="42")


def schemas(database: Database) -> set[str]:
    with psycopg.connect(database.url) as connection:
        rows = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information'").fetchall()
    return {name for (name,) in rows}


def test_only_the_logs_tables_are_made_and_the_system_can_follow(empty_database: Database) -> None:
    with open_broker_sync(empty_database.url) as broker:
        assert "broker/0001_log.sql" in broker.migrate()
        assert broker.migrate() == []
        assert schemas(empty_database) == {"public", "clientmgr"}
        assert "base/0003_dagster_login.sql" in migrate_database(empty_database, audit=AuditLogger(TEST_KEY.encode()))
        with empty_database.connect(Role.OWNER) as connection:
            assert chain_length(connection, PLATFORM) == 1, "a verification expects the platform's chain"
        assert broker.migrate() == []


def test_a_login_with_the_writers_role_handles_into_its_own_tables(
    writing_login: str, empty_database: Database
) -> None:
    with psycopg.connect(empty_database.url) as owner:
        owner.execute("CREATE TABLE invoices (by name)")
        owner.execute("GRANT INSERT, SELECT ON invoices TO shop")

    async def handle(batch: Batch) -> None:
        await batch.connection.execute("INSERT INTO invoices VALUES (current_user)")

    async def main() -> None:
        async with open_broker(writing_login) as broker:
            await broker.publish("orders", [ORDER])
            await broker.consume("billing", handle, burst=True)

    asyncio.run(main())
    with psycopg.connect(writing_login) as connection:
        assert connection.execute("SELECT * FROM invoices").fetchall() == [("shop",)]


def test_a_login_without_rights_learns_what_to_grant(login: str, sync_broker: SyncBroker) -> None:
    with open_broker_sync(login) as broker:
        with pytest.raises(LogTablesError, match="GRANT clientmgr_writer TO"):
            broker.publish("orders", [ORDER])
        with pytest.raises(LogTablesError, match="GRANT clientmgr_writer TO"):
            broker.consume("billing", lambda batch: None, burst=True)


def test_a_login_that_may_not_make_tables_learns_what_it_needs(login: str) -> None:
    with (
        open_broker_sync(login) as broker,
        pytest.raises(LogTablesError, match="CREATE on the database and CREATEROLE"),
    ):
        broker.migrate()


def test_missing_tables_are_explained(empty_database: Database) -> None:
    with (
        open_broker_sync(empty_database.url) as broker,
        pytest.raises(LogTablesError, match=re.escape("broker.migrate()")),
    ):
        broker.ensure_topic("orders")


def test_the_environment_does_not_count(empty_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER", "pubsub")
    monkeypatch.setenv("BROKER_TOTAL_PARTITIONS", "nonsense")
    with open_broker_sync(empty_database.url, broker_total_partitions=3) as broker:
        broker.migrate()
        broker.ensure_topic("orders")
    with psycopg.connect(empty_database.url) as connection:
        partitions = connection.execute("SELECT total_partitions FROM clientmgr.log_counter WHERE topic = 'orders'")
        assert partitions.fetchone() == (3,)


@pytest.mark.parametrize("settings", [{"partitions": 3}, {"broker_total_partitions": 0}, {"broker": "pubsub"}])
def test_a_wrong_setting_is_refused_by_name(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match=f"^{next(iter(settings))}: expected"):
        open_broker("postgresql://localhost/shop", **settings)


def test_what_is_no_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(SettingsError, match="expected a URL like") as refused:
        open_broker("shop:secret@localhost")
    assert "secret" not in str(refused.value)


def test_other_forms_of_a_connection_string_are_fine() -> None:
    open_broker(make_conninfo(host="localhost", dbname="shop"))
    open_broker("postgres://localhost/shop")
