"""`clientmgr tenants place` where there is no cluster, and used wrongly."""

from pathlib import Path

import pytest

from clientmgr.base.database import Database
from tests.cli.calling import Cli


@pytest.mark.parametrize(
    "options", [(), ("7", "--to", "127.0.0.1:5432"), ("--rebalance", "--yes"), ("--stop",), ("--json",)]
)
def test_on_one_postgresql_it_says_that_there_is_nothing_to_place(
    database: Database, tmp_path: Path, options: tuple[str, ...]
) -> None:
    cli = Cli.on(database, tmp_path, CITUS="off")
    result = cli("tenants", "place", *options)
    assert (result.code, result.out) == (1, "")
    assert "one PostgreSQL" in result.err
    assert "Citus" in result.err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("7",), "--to"),
        (("--to", "a:1"), "--to"),
        (("7", "--to", "a:1", "--rebalance"), "--rebalance"),
        (("--rebalance", "--stop"), "--stop"),
        (("--dry-run",), "--dry-run"),
        (("0", "--to", "a:1"), "CUSTOMER_ID"),
        (("--rebalance", "--by", "luck"), "--by"),
    ],
)
def test_options_that_do_not_fit_are_named(
    database: Database, tmp_path: Path, options: tuple[str, ...], named: str
) -> None:
    result = Cli.on(database, tmp_path, CITUS="off")("tenants", "place", *options)
    assert (result.code, named in result.err) == (2, True), result
