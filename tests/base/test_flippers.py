"""Flippers: whose setting counts, who may change it, and how soon a daemon follows."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.tenants.flippers import Flipper, FlipperCache, Flippers
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.cli.calling import Cli

POSTGRES = Flipper.USE_POSTGRES_DEVICE_MAPPER
CUSTOMER, OTHER = CustomerId(7), CustomerId(8)


@pytest.fixture
def cli(database: Database, settings_for: Callable[[Database], Settings], tmp_path: Path) -> Cli:
    TenantSchemaManager(database, settings_for(database)).activate([CUSTOMER, OTHER], actor="test")
    return Cli.on(database, tmp_path)


def test_a_flipper_that_nobody_set_is_off() -> None:
    assert not Flippers().is_on(POSTGRES, CUSTOMER)


@pytest.mark.parametrize(
    ("for_all", "for_customer", "expected"),
    [
        (None, None, False),
        (True, None, True),
        (False, None, False),
        (None, True, True),
        (True, False, False),
        (False, True, True),
    ],
)
def test_a_customers_own_setting_beats_the_global_one(
    for_all: bool | None, for_customer: bool | None, expected: bool
) -> None:
    rows: list[tuple[str, int | None, bool]] = []
    if for_all is not None:
        rows.append((POSTGRES, None, for_all))
    if for_customer is not None:
        rows.append((POSTGRES, CUSTOMER, for_customer))
    rows.append((POSTGRES, OTHER, not expected))
    assert Flippers(rows).is_on(POSTGRES, CUSTOMER) is expected


def test_what_is_set_is_listed_and_what_is_unset_is_not(cli: Cli) -> None:
    assert "is now on for all customers" in cli.ok("flippers", "set", POSTGRES, "on", "--yes").out
    assert "is now off for customer 7" in cli.ok("flippers", "set", POSTGRES, "off", "--customer", "7").out
    listed = cli.ok("flippers", "list", "--json").json
    assert [(row["name"], row["customer_id"], row["enabled"]) for row in listed] == [
        (POSTGRES, None, True),
        (POSTGRES, 7, False),
    ]
    assert "is no longer set for customer 7" in cli.ok("flippers", "unset", POSTGRES, "--customer", "7").out
    assert [row["customer_id"] for row in cli.ok("flippers", "list", "--json").json] == [None]
    cli.ok("flippers", "unset", POSTGRES, "--yes")
    assert "all flippers are off" in cli.ok("flippers", "list").out


def test_a_customers_list_shows_its_own_and_the_global_ones(cli: Cli) -> None:
    for customer in ("7", "8"):
        cli.ok("flippers", "set", POSTGRES, "on", "--customer", customer)
    cli.ok("flippers", "set", POSTGRES, "off", "--yes")
    listed = cli.ok("flippers", "list", "--customer", "8", "--json").json
    assert [row["customer_id"] for row in listed] == [None, 8]


def test_each_change_is_audited_and_nothing_else_is(cli: Cli) -> None:
    cli.ok("flippers", "set", POSTGRES, "on", "--customer", "7")
    assert "was on already" in cli.ok("flippers", "set", POSTGRES, "on", "--customer", "7").out
    cli.ok("flippers", "unset", POSTGRES, "--customer", "7")
    assert "was not set" in cli.ok("flippers", "unset", POSTGRES, "--customer", "7").out
    cli.ok("flippers", "set", POSTGRES, "off", "--yes")

    def recorded(chain: str) -> list[tuple[str, str]]:
        rows = cli.ok("audit", "list", "--customer", chain, "--json").json
        rows = [row for row in rows if row["action"].startswith("flipper.")]
        assert all(row["details"] == {"flipper": POSTGRES} and row["actor"].startswith("cli:") for row in rows)
        return [(row["action"], row["outcome"]) for row in reversed(rows)]

    assert recorded("7") == [("flipper.set", "on"), ("flipper.unset", "unset")]
    assert recorded("0") == [("flipper.set", "off")]
    assert "intact" in cli.ok("audit", "verify").out


def test_a_flipper_for_nobody_is_refused(cli: Cli) -> None:
    result = cli("flippers", "set", POSTGRES, "on", "--customer", "4711")
    assert (result.code, "customer 4711 was never activated" in result.err) == (1, True)
    assert cli("flippers", "set", POSTGRES, "on", "--customer", "7;").code == 2
    assert cli("flippers", "set", "NO_SUCH_FLIPPER", "on").code == 2
    assert cli.ok("flippers", "list", "--json").json == []


def test_the_reader_can_not_change_flippers(cli: Cli, database: Database) -> None:
    with (
        pytest.raises(psycopg.errors.InsufficientPrivilege),
        database.connect(Role.READER) as connection,
    ):
        connection.execute("DELETE FROM clientmgr.flippers")


@pytest.mark.anyio
async def test_a_daemon_follows_once_its_copy_is_old_enough_and_asks_no_sooner(cli: Cli, database: Database) -> None:
    patient, impatient = FlipperCache(3_600_000), FlipperCache(0)
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        for cache in (patient, impatient):
            assert not (await cache.current(connection)).is_on(POSTGRES, CUSTOMER)
        cli.ok("flippers", "set", POSTGRES, "on", "--yes")
        assert (await impatient.current(connection)).is_on(POSTGRES, CUSTOMER)
        assert not (await patient.current(connection)).is_on(POSTGRES, CUSTOMER)
