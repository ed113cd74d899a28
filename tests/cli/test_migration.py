"""`clientmgr migration …`: from stage to stage with the flippers, no further than comparisons allow, audited."""

from pathlib import Path

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.tenants.flippers import Flipper, read_flippers
from tests.cli.calling import Cli

SEVEN = CustomerId(7)
POSTGRES, WITHOUT_FALLBACK = Flipper


@pytest.fixture
def cli(database: Database, tmp_path: Path) -> Cli:
    cli = Cli.on(database, tmp_path)
    cli.ok("tenants", "activate", "7")
    return cli


def flippers(database: Database) -> tuple[bool, bool]:
    with database.connect(Role.READER) as connection:
        found = read_flippers(connection, SEVEN)
    return found.is_on(POSTGRES, SEVEN), found.is_on(WITHOUT_FALLBACK, SEVEN)


def compared(database: Database, *, different: int = 0, rejected: int = 0, hours_ago: int = 0) -> None:
    """As if Dagster's job had imported and compared the customer."""
    with database.connect(Role.WRITER) as connection:
        connection.execute("DELETE FROM clientmgr.legacy_imports")
        connection.execute(
            """INSERT INTO clientmgr.legacy_imports
                (customer_id, run_id, scanned_at, items, imported, rejected, imported_at, checked_at, different)
            SELECT 7, 'run', at, 10, 10, %s, at, at, %s FROM (SELECT now() - %s * interval '1 hour' AS at) AS t""",
            (rejected, different, hours_ago),
        )


def stage(cli: Cli) -> str:
    return str(cli.ok("migration", "status", "7", "--json").json["stage"])


def test_a_customer_goes_from_stage_to_stage_with_its_flippers_and_back(database: Database, cli: Cli) -> None:
    assert stage(cli) == "legacy"
    cli.ok("migration", "start", "7")
    assert stage(cli) == "importing"
    compared(database)
    seen = [flippers(database)]
    for expected in ("in sync", "postgres with fallback", "postgres only"):
        assert expected in cli.ok("migration", "advance", "7", "--yes").out
        seen.append(flippers(database))
    assert seen == [(False, False), (False, False), (True, False), (True, True)]

    assert "postgres with fallback" in cli.ok("migration", "back", "7", "--yes").out
    assert flippers(database) == (True, False)
    cli.ok("migration", "back", "7", "--to", "legacy", "--yes")
    assert (stage(cli), flippers(database)) == ("legacy", (False, False))

    audited = [
        row for row in cli.ok("audit", "list", "--customer", "7", "--json").json if row["action"] == "migration.stage"
    ]
    assert [row["outcome"] for row in audited][::-1] == [
        "importing",
        "in sync",
        "postgres with fallback",
        "postgres only",
        "postgres with fallback",
        "legacy",
    ]


@pytest.mark.parametrize(
    ("result", "reason"),
    [({"different": 4}, "4 devices"), ({"rejected": 2}, "2 items"), ({"hours_ago": 60}, "older than 48 hours")],
)
def test_nobody_advances_further_than_the_comparison_allows(
    database: Database, cli: Cli, result: dict[str, int], reason: str
) -> None:
    cli.ok("migration", "start", "7")
    assert "not been imported" in cli("migration", "advance", "7", "--yes").err
    compared(database, **result)

    refused = cli("migration", "advance", "7", "--yes")

    assert (refused.code, stage(cli), flippers(database)) == (1, "importing", (False, False))
    assert reason in refused.err


def test_the_fallbacks_answers_keep_a_customer_from_leaving_it(database: Database, cli: Cli) -> None:
    cli.ok("migration", "start", "7")
    compared(database)
    cli.ok("migration", "advance", "7", "--yes")
    cli.ok("migration", "advance", "7", "--yes")
    with database.connect(Role.WRITER) as connection:
        connection.execute(
            "INSERT INTO clientmgr.legacy_fallback_answers VALUES (7, date_trunc('hour', now()), 200, 3)"
        )

    refused = cli("migration", "advance", "7", "--yes")

    assert refused.code == 1
    assert "3 of 200 contacts" in refused.err
    assert flippers(database) == (True, False)


def test_only_active_customers_are_migrated_and_mistakes_are_named(database: Database, cli: Cli) -> None:
    assert "customer 8 was never activated" in cli("migration", "start", "8").err
    assert cli("migration", "start", "x").code == 2
    assert "not active" in cli("migration", "status", "8").out
    assert "is at the first stage" in cli("migration", "back", "7", "--yes").err
    cli.ok("migration", "start", "7")
    assert "is not before that" in cli("migration", "back", "7", "--to", "in sync", "--yes").err
    cli.ok("tenants", "delete", "7", "--yes")
    assert "is deleted" in cli("migration", "advance", "7", "--yes").err
    with database.connect(Role.READER) as connection:
        assert connection.execute("SELECT count(*) FROM clientmgr.legacy_migrations").fetchone() == (0,)


def test_flippers_that_somebody_changed_by_hand_show(database: Database, cli: Cli) -> None:
    cli.ok("migration", "start", "7")
    assert cli.ok("migration", "status", "7", "--json").json["flippers_agree"] is True
    cli.ok("flippers", "set", "USE_POSTGRES_DEVICE_MAPPER", "on", "--customer", "7")
    assert cli.ok("migration", "status", "7", "--json").json["flippers_agree"] is False
    assert "importing" in cli.ok("migration", "status").out
