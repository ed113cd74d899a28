"""`clientmgr topics seek`: what it tells, what it asks, and what the audit log keeps of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Batch, Message
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.cli.calling import Cli

MESSAGES = 6


@pytest.fixture
def cli(database: Database, tmp_path: Path) -> Cli:
    return Cli.on(database, tmp_path)


@pytest.fixture
def read(database: Database, settings_for: Callable[[Database], Settings]) -> Callable[[], list[str]]:
    """Reads what the subscription `billing` gets next. The topic has six messages, all of them read."""
    settings = settings_for(database)

    async def consume() -> list[str]:
        seen: list[str] = []

        async def handle(batch: Batch) -> None:
            seen.extend(message.data.decode() for message in batch.messages)

        async with PostgresBroker(database, settings) as broker:
            await broker.consume("billing", handle, burst=True)
        return seen

    async def prepare() -> None:
        async with PostgresBroker(database, settings) as broker:
            await broker.ensure_topic("orders")
            await broker.ensure_subscription("billing", "orders")
            for number in range(1, MESSAGES + 1):
                await broker.publish("orders", [Message(str(number).encode(), tenant="42")])

    def run() -> list[str]:
        return asyncio.run(consume())

    asyncio.run(prepare())
    assert len(run()) == MESSAGES
    return run


def test_a_dry_run_tells_and_moves_nothing(cli: Cli, read: Callable[[], list[str]]) -> None:
    result = cli.ok("topics", "seek", "billing", "--to-offset", "3", "--dry-run", "--by-partition")
    assert "billing would move to offset 3 of orders: 4 messages again, 0 skipped" in result.out
    assert "nothing was done" in result.out
    assert result.out.count("\n") >= 16 + 2, "a line for each partition"
    assert read() == []
    assert "subscription.seek" not in cli.ok("audit", "list", "--json").out


def test_messages_come_again_and_the_audit_log_says_who_asked(cli: Cli, read: Callable[[], list[str]]) -> None:
    result = cli.ok("topics", "seek", "billing", "--to-offset", "3", stdin=b"y\n")
    assert "moved to offset 3" in result.out
    assert read() == ["3", "4", "5", "6"]
    (row,) = [row for row in cli.ok("audit", "list", "--json").json if row["action"] == "subscription.seek"]
    assert row["actor"].startswith("cli:")
    assert row["rows_affected"] == 4
    details: dict[str, Any] = row["details"]
    assert (details["subscription"], details["to_offset"], details["again"], details["skipped"]) == ("billing", 3, 4, 0)


def test_a_no_moves_nothing(cli: Cli, read: Callable[[], list[str]]) -> None:
    result = cli("topics", "seek", "billing", "--to-start", stdin=b"n\n")
    assert result.code == 1
    assert "6 messages again" in result.out
    assert read() == []


def test_from_the_start_to_the_end_and_by_time(cli: Cli, read: Callable[[], list[str]], database: Database) -> None:
    assert cli.ok("topics", "seek", "billing", "--to-start", "--yes", "--json").json["again"] == MESSAGES
    assert cli.ok("topics", "seek", "billing", "--to-end", "--yes", "--json").json["skipped"] == MESSAGES
    assert read() == []
    assert cli.ok("topics", "seek", "billing", "--to-time", "1h", "--yes", "--json").json["again"] == MESSAGES
    assert len(read()) == MESSAGES


def test_the_start_is_what_is_still_kept(cli: Cli, read: Callable[[], list[str]], database: Database) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute("DELETE FROM clientmgr.outbox_message_t WHERE c_offset = 2")  # as trimming by partition may
    cli.ok("topics", "seek", "billing", "--to-start", "--yes")
    assert read() == ["3", "4", "5", "6"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "exactly one of --to-offset, --to-time, --to-start, --to-end"),
        (["--to-start", "--to-end"], "exactly one of"),
        (["--to-offset", "99"], "1 to 7, which is what topic orders keeps"),
        (["--to-time", "yesterday"], "--to-time: expected a time like"),
    ],
)
def test_a_place_that_is_none_is_refused(
    cli: Cli, read: Callable[[], list[str]], arguments: list[str], problem: str
) -> None:
    result = cli("topics", "seek", "billing", *arguments, "--yes")
    assert result.code == 2
    assert problem in result.err


def test_a_subscription_that_nobody_knows_is_named(cli: Cli) -> None:
    for place in ("--to-start", "--to-end"):
        result = cli("topics", "seek", "nobody", place, "--yes")
        assert result.code == 1
        assert "subscription nobody does not exist" in result.err
