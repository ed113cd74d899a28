"""`clientmgr tenants reconcile`: looks, repairs, tells; its exit code says whether anything is left."""

from pathlib import Path

from clientmgr.base.database import Database, Role
from tests.cli.calling import Cli


def test_it_tells_what_disagrees_repairs_it_and_says_so(database: Database, tmp_path: Path) -> None:
    cli = Cli.on(database, tmp_path)
    assert cli.ok("tenants", "reconcile").out == "nothing disagrees\n"
    cli.ok("tenants", "activate", "7")
    with database.connect(Role.OWNER) as connection:
        connection.execute('DROP SCHEMA "tenant_7" CASCADE')

    looked = cli("tenants", "reconcile", "--dry-run", "--json")
    repaired = cli("tenants", "reconcile", "--json")

    assert (looked.code, repaired.code) == (1, 0)
    assert [(row["customer_id"], row["found"], row["outcome"]) for row in looked.json + repaired.json] == [
        (7, "schema missing", None),
        (7, "schema missing", "created"),
    ]
    assert cli.ok("tenants", "reconcile", "--json").json == []


def test_what_it_leaves_to_a_person_is_an_error(database: Database, tmp_path: Path) -> None:
    cli = Cli.on(database, tmp_path)
    with database.connect(Role.OWNER) as connection:
        connection.execute('CREATE SCHEMA "tenant_8" AUTHORIZATION clientmgr_ddl')
        connection.execute('CREATE TABLE "tenant_8".devices AS SELECT 1 AS x')
        connection.execute('ALTER TABLE "tenant_8".devices OWNER TO clientmgr_ddl')

    result = cli("tenants", "reconcile")

    assert result.code == 1
    assert "it holds 1 devices" in result.out
    cli.ok("tenants", "delete", "--yes", "8")
    cli.ok("tenants", "reconcile")
