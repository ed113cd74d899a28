"""The watch on statements sees what daemons and tests send, and its rules tell accident from intent."""

import asyncio
from typing import LiteralString

import psycopg
import pytest

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database, Role
from tests.statements.allowed import ALLOWED
from tests.statements.rules import complaint, tenant_tables
from tests.statements.watch import StatementWatch
from tests.waiting import eventually

ONE, TWO = quoted_schema(CustomerId(71)), quoted_schema(CustomerId(72))


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT * FROM {ONE}.devices UNION ALL SELECT * FROM {TWO}.devices",
        f"INSERT INTO {ONE}.devices SELECT * FROM tenant_72.devices",
        "DROP SCHEMA tenant_71, TENANT_72 CASCADE",
        "SELECT to_regclass('tenant_71.devices'), to_regclass('tenant_72.devices')",
        "SET search_path = tenant_71",
        'SET LOCAL search_path TO "tenant_71", public',
        "SELECT set_config('search_path', 'tenant_71', true)",
        "SELECT count(*) FROM devices",
        "DELETE FROM ONLY devices WHERE client_id = $1",
        "UPDATE devices SET contact_id = NULL",
        'INSERT INTO "contact_links" VALUES (1)',
        f"SELECT * FROM {ONE}.devices AS d JOIN push_token_claims AS c USING (client_id)",
        "TRUNCATE device_tombstones",
    ],
)
def test_a_statement_that_reaches_two_tenants_or_one_by_accident_breaks_a_rule(statement: str) -> None:
    assert complaint(statement)


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT * FROM {ONE}.devices AS d JOIN {ONE}.contact_links AS l USING (client_id) -- not tenant_72",
        f"WITH devices AS (SELECT * FROM {ONE}.devices) SELECT count(*) FROM devices",
        f"WITH devices (id) AS MATERIALIZED (SELECT client_id FROM {ONE}.devices) SELECT * FROM devices",
        "SELECT * FROM clientmgr.tenants",
        "SELECT 'delete from devices'",
        "SELECT d.client_id AS devices FROM unnest($1) AS d (client_id)",
        "SET search_path = dagster",
    ],
)
def test_a_statement_that_keeps_to_one_tenant_breaks_none(statement: str) -> None:
    assert not complaint(statement)


def test_the_rules_know_the_tenants_tables() -> None:
    assert tenant_tables() >= {"devices", "contact_links", "contact_merges", "push_token_claims", "device_tombstones"}


@pytest.mark.parametrize("pattern", ALLOWED)
def test_every_exception_has_its_reason(pattern: str) -> None:
    assert len(ALLOWED[pattern].split()) >= 5, "in a sentence"


def test_the_watch_sees_plain_prepared_piped_and_failed_statements(
    database: Database, statement_watch: StatementWatch
) -> None:
    wrong: LiteralString = "SELECT '{}', 'tenant_71', 'tenant_72'"
    with database.connect(Role.READER, autocommit=True) as connection:
        connection.execute(wrong.format("plain"))
        connection.execute(wrong.format("with parameters") + ", %s", (1,))
        connection.execute(wrong.format("prepared") + ", %s", (1,), prepare=True)
        with connection.pipeline():
            connection.execute(wrong.format("piped") + ", %s", (1,))
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT 'failed' FROM tenant_71.nothing, tenant_72.nothing")
    asyncio.run(_send_asynchronously(database, wrong.format("asynchronous")))
    seen: list[str] = []
    ways = ("plain", "with parameters", "prepared", "piped", "failed", "asynchronous")

    def all_are_seen() -> bool:
        seen.extend(statement_watch.complaints())
        return all(any(f"'{way}'" in one for one in seen) for way in ways)

    eventually(all_are_seen, f"the watch has seen {', '.join(ways)}", within_s=10)
    assert all("2 tenants" in one and "clientmgr" in one and database.url.rpartition("/")[2] in one for one in seen)


async def _send_asynchronously(database: Database, statement: LiteralString) -> None:
    async with await database.connect_async(Role.WRITER) as connection:
        await connection.execute(statement)
