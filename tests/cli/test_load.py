"""`clientmgr load`: publishes exactly what was asked for, where it belongs, and stops when told to."""

import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.cli.load import AT_ONCE, Pace
from clientmgr.contracts import topics
from clientmgr.local.load.traffic import OUT_OF_ORDER_MS
from tests.cli.calling import Cli
from tests.cli.conftest import CLIENTMGR
from tests.waiting import eventually

START = ("--start-at", "1763248000123")


@pytest.fixture
def cli(database: Database, tmp_path: Path) -> Cli:
    return Cli.on(database, tmp_path)


def published(database: Database) -> Counter[tuple[str, str]]:
    """Messages in the log, counted by topic and tenant."""
    with database.connect(Role.READER) as connection:
        rows = connection.execute(
            "SELECT topic, host_id FROM clientmgr.outbox_message_t JOIN clientmgr.log_counter ON id = topic_id"
        )
        return Counter((topic, tenant) for topic, tenant in rows)


def messages(cli: Cli, topic: str) -> list[Any]:
    lines = cli.ok("tail", topic, "--from-start", "--burst", "--json").json_lines
    return [line["data"] for line in lines]


def test_it_publishes_exactly_as_many_as_asked_for(cli: Cli, database: Database) -> None:
    result = cli.ok("load", "--events", "2345", "--tenants", "1001,1002", "--json").json
    assert (result["published"], result["topics"]) == (2345, {topics.WRITER: 2345})
    counts = published(database)
    assert counts.total() == 2345
    assert set(counts) == {(topics.WRITER, "1001"), (topics.WRITER, "1002")}


def test_what_it_publishes_is_what_the_dry_run_prints_in_that_order(cli: Cli) -> None:
    arguments = ("load", "--events", "1500", "--tenants", "7", "--seed", "5", *START)
    printed = [line["message"] for line in cli.ok(*arguments, "--dry-run").json_lines]
    cli.ok(*arguments)
    assert messages(cli, topics.WRITER) == printed


def test_a_dry_run_needs_no_database_and_publishes_nothing(tmp_path: Path) -> None:
    nowhere = Cli({"DATA_DIR": str(tmp_path)})
    lines = nowhere.ok("load", "--events", "20", "--tenants", "7", "--dry-run").json_lines
    assert [line["topic"] for line in lines] == [topics.WRITER] * 20


def test_without_tenants_it_takes_the_active_ones(cli: Cli, database: Database) -> None:
    cli.ok("tenants", "activate", "11", "12", "13")
    cli.ok("tenants", "delete", "13", "--yes")
    cli.ok("load", "--events", "200")
    assert {tenant for _, tenant in published(database)} == {"11", "12"}


def test_where_no_tenant_is_active_it_says_so(cli: Cli) -> None:
    result = cli("load", "--events", "1")
    assert result.code == 1
    assert "no active tenant" in result.err


def test_verdicts_and_deletions_go_to_their_own_topics(cli: Cli, database: Database) -> None:
    cli.ok("load", "--events", "2000", "--tenants", "7", "--verdicts", "0.3", "--contact-deletions", "0.2")
    assert {topic for topic, _ in published(database)} == {
        topics.WRITER,
        topics.PUSH_TOKEN_STATUS,
        topics.WEB_PUSH_TOKEN_STATUS,
        topics.CONTACT_DELETION,
    }


def test_by_default_everything_happened_in_the_last_moments(cli: Cli) -> None:
    before = time.time_ns() // 1_000_000
    cli.ok("load", "--events", "500", "--tenants", "7", "--rate", "1000", "--head-start", "500", "--late", "0")
    times = [event["occurredAt"] for event in messages(cli, topics.WRITER)]
    assert before - 500 - OUT_OF_ORDER_MS[1] <= min(times)
    assert max(times) <= time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--tenants", "7"], "--events"),
        (["--tenants", "7", "--events", "5", "--forever"], "--events"),
        (["--tenants", "7,x", "--events", "5"], "--tenants"),
        (["--tenants", "7", "--events", "5", "--late", "0.9", "--malformed", "0.9"], "shares"),
    ],
)
def test_what_can_not_be_is_refused_by_name(cli: Cli, arguments: list[str], named: str) -> None:
    result = cli("load", *arguments)
    assert result.code == 2
    assert f"{named}: expected" in result.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_it_tells_what_it_published(cli: Cli, database: Database, number: signal.Signals) -> None:
    command: list[str | Path] = [CLIENTMGR, "load", "--forever", "--rate", "200", "--tenants", "7"]
    environment = {**os.environ, **cli.environment}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        eventually(lambda: published(database).total() > 100, "messages are published")
        running.send_signal(number)
        out, _ = running.communicate(timeout=30)
    assert running.returncode == 0
    assert f"published {published(database).total()} in" in out


def test_a_rate_lets_through_as_many_as_the_time_allows_and_the_head_start_at_once() -> None:
    pace = Pace(total=None, rate=20, head_start=100)
    assert pace.due(published=0, elapsed_s=0.0) == 101
    assert pace.due(published=101, elapsed_s=1.0) == 20
    assert pace.due(published=121, elapsed_s=1.0) == 0


def test_without_a_rate_as_many_are_let_through_as_fit_a_publication() -> None:
    assert Pace(total=None, rate=0, head_start=0).due(published=10**9, elapsed_s=0.1) == AT_ONCE
    assert Pace(total=1500, rate=0, head_start=0).due(published=1000, elapsed_s=0.1) == 500
