"""What people call a customer, on the command line."""

from pathlib import Path

from clientmgr.base.database import Database
from tests.cli.calling import Cli


def test_a_customer_is_given_a_name_and_it_goes_with_the_account(database: Database, tmp_path: Path) -> None:
    cli = Cli.on(database, tmp_path)

    def name() -> object:
        (tenant,) = cli.ok("tenants", "list", "--json").json
        return tenant["name"]

    refused = cli("tenants", "activate", "7", "8", "--name", "Acme")
    assert (refused.code, "--name" in refused.err) == (2, True)
    cli.ok("tenants", "activate", "7", "--name", " Acme ")
    assert name() == "Acme"
    assert cli.ok("tenants", "status", "7", "--json").json["name"] == "Acme"
    assert "called Acme Ltd" in cli.ok("tenants", "rename", "7", "Acme Ltd").err
    assert "already" in cli.ok("tenants", "rename", "7", "Acme Ltd").err
    rows = cli.ok("audit", "list", "-c", "7", "--action", "tenant.rename", "--json").json
    assert [row["outcome"] for row in rows] == ["named", "named"]
    assert "Acme" not in str(rows), "the audit log outlives the name"
    assert cli("tenants", "rename", "8", "Nobody").code == 1
    assert cli("tenants", "rename", "7", "x" * 101).code == 2
    cli.ok("tenants", "delete", "7", "--yes")
    assert name() is None
