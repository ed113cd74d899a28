"""`clientmgr publish`, `tail` and `topics`: what they print, refuse and leave in the log."""

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.pubsub_v1.types import Subscription

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker.gateway.server import Gateway
from clientmgr.broker.interface import Batch, Dead, Message, Outcome, Retry
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.broker.pubsub.client import PubSubClient
from clientmgr.broker.pubsub.wire import to_proto
from tests.cli.calling import Cli
from tests.cli.conftest import CLIENTMGR
from tests.waiting import eventually

TOPIC = "orders"

# The Pub/Sub gateway takes any bytes; our own publishing does not.
INSERT_ANY_BYTES = """
INSERT INTO clientmgr.outbox_message_t (topic_id, partition_id, c_offset, tx_last_offset, transaction_id, payload)
SELECT id, 0, %(offset)s, %(offset)s, gen_random_uuid(), %(payload)s
FROM clientmgr.log_counter WHERE topic = %(topic)s
"""


@pytest.fixture
def cli(database: Database, tmp_path: Path) -> Cli:
    return Cli.on(database, tmp_path)


@pytest.fixture
def orders(cli: Cli) -> Cli:
    """The command, and a topic that exists and is empty."""
    cli.ok("publish", TOPIC, "--create", "-", stdin=b"")
    return cli


@pytest.fixture
def rows(database: Database) -> Callable[..., list[tuple[Any, ...]]]:
    def run(sql: str) -> list[tuple[Any, ...]]:
        with database.connect(Role.OWNER, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()

    return run


def logged(cli: Cli) -> list[dict[str, Any]]:
    return cli.ok("tail", TOPIC, "--from-start", "--burst", "--json").json_lines


def test_a_published_message_is_in_the_log_byte_for_byte(
    orders: Cli, rows: Callable[..., list[tuple[Any, ...]]]
) -> None:
    result = orders.ok("publish", TOPIC, '{"b":1.50, "a":"é"}', "--key", "k1", "-a", "x=1", "--attr", "y=a=b")
    assert "published 1 to orders" in result.out
    assert rows("SELECT payload, user_id, host_id, attributes FROM clientmgr.outbox_message_t") == [
        ('{"b":1.50, "a":"é"}'.encode(), "k1", "", {"x": "1", "y": "a=b"})
    ]


def test_the_customer_that_a_message_names_is_its_tenant(orders: Cli) -> None:
    orders.ok("publish", TOPIC, '{"customerId": 42}')
    orders.ok("publish", TOPIC, '{"customerId": 42}', "--tenant", "other")
    orders.ok("publish", TOPIC, '[{"customerId": 7}]')
    assert [message["tenant"] for message in logged(orders)] == ["42", "other", ""]


def test_a_message_of_a_customer_that_can_not_be_is_refused(orders: Cli) -> None:
    result = orders("publish", TOPIC, '{"customerId": "1; drop schema x"}')
    assert result.code == 2
    assert "customerId: expected a positive integer" in result.err
    assert logged(orders) == []


def test_what_is_not_json_is_refused(orders: Cli) -> None:
    result = orders("publish", TOPIC, "{'a': 1}")
    assert result.code == 2
    assert "data: expected JSON" in result.err


def test_a_file_is_published_line_by_line_in_its_order(orders: Cli, tmp_path: Path) -> None:
    file = tmp_path / "messages.ndjson"
    file.write_bytes(b"\xef\xbb\xbf" + b"".join(b'{"n": %d}\r\n\n' % number for number in range(2500)))
    assert orders.ok("publish", TOPIC, "--file", str(file), "--json").json == {"topic": TOPIC, "published": 2500}
    assert [message["data"]["n"] for message in logged(orders)] == list(range(2500))


def test_each_line_is_a_transaction_of_its_own(orders: Cli, rows: Callable[..., list[tuple[Any, ...]]]) -> None:
    orders.ok("publish", TOPIC, "-", stdin=b"1\n2\n3\n")
    assert rows(
        "SELECT count(DISTINCT transaction_id), sum(tx_last_offset - c_offset) FROM clientmgr.outbox_message_t"
    ) == [(3, 0)]


def test_one_wrong_line_is_named_and_nothing_is_published(orders: Cli) -> None:
    lines = [b'{"customerId": 1}'] * 3000 + [b'{"customerId": 0}'] + [b'{"customerId": 1}']
    result = orders("publish", TOPIC, "-", stdin=b"\n".join(lines))
    assert result.code == 2
    assert "line 3001: customerId" in result.err
    assert logged(orders) == []


def test_a_line_beyond_the_limit_is_refused_by_its_number(database: Database, tmp_path: Path) -> None:
    cli = Cli.on(database, tmp_path, BROKER_MAX_MESSAGE_BYTES="100")
    result = cli("publish", TOPIC, "--create", "-", stdin=b'"short"\n"' + b"x" * 10_000 + b'"\n')
    assert result.code == 2
    assert "line 2: data: expected at most 100 bytes" in result.err


def test_a_missing_topic_is_named_and_not_made(cli: Cli, rows: Callable[..., list[tuple[Any, ...]]]) -> None:
    result = cli("publish", "no-such-topic", "{}")
    assert result.code == 1
    assert "topic no-such-topic does not exist" in result.err
    assert "--create" in result.err
    assert rows("SELECT topic FROM clientmgr.log_counter") == [("outbox",)]


def test_a_message_and_a_file_at_once_are_wrong_usage(orders: Cli) -> None:
    assert orders("publish", TOPIC, "{}", "--file", "x").code == 2
    assert orders("publish", TOPIC).code == 2


def test_tail_prints_a_json_object_a_line_with_the_data_as_it_was_published(orders: Cli) -> None:
    orders.ok(
        "publish",
        TOPIC,
        '{"big": 123456789012345678901234567890,\n "x": 1.10}',
        "--tenant",
        "t",
        "--key",
        "k",
        "-a",
        "a=b",
    )
    (line,) = orders.ok("tail", TOPIC, "--from-start", "--burst", "--json").out.splitlines()
    assert '"data":{"big": 123456789012345678901234567890,  "x": 1.10}' in line
    message = json.loads(line)
    assert {name: message[name] for name in ("offset", "tenant", "key", "attributes")} == {
        "offset": 1,
        "tenant": "t",
        "key": "k",
        "attributes": {"a": "b"},
    }
    assert message["publishedAt"].endswith("Z")


def test_tail_masks_tokens_for_people_and_nothing_for_programs(orders: Cli) -> None:
    token = "token-that-nobody-may-see-0123456789"
    orders.ok("publish", TOPIC, f'{{"pushToken":"{token}","x":1.10}}')
    shown = orders.ok("tail", TOPIC, "--from-start", "--burst").out
    assert '{"pushToken":"token-…6789","x":1.10}' in shown
    assert token in orders.ok("tail", TOPIC, "--from-start", "--burst", "--json").out
    told = " ".join(orders.ok("tail", "--help").out.split())
    assert "nothing is masked" in told.replace("│ │ ", "")


def test_tail_shows_what_is_not_json_for_what_it_is(orders: Cli, database: Database) -> None:
    with database.connect(Role.OWNER) as connection:
        for offset, payload in enumerate([b"plain \x1b[31m", b"\xff\xfe"], 1):
            connection.execute(INSERT_ANY_BYTES, {"offset": offset, "payload": payload, "topic": TOPIC})
    first, second = logged(orders)
    assert first["dataText"] == "plain \x1b[31m"
    assert second["dataBase64"] == "//4="
    assert "\x1b" not in orders.ok("tail", TOPIC, "--from-start", "--burst").out


def test_tail_begins_with_what_is_new_unless_told_otherwise(orders: Cli) -> None:
    orders.ok("publish", TOPIC, "-", stdin=b"1\n2\n3\n")
    assert orders.ok("tail", TOPIC, "--burst", "--json").out == ""
    assert [line["data"] for line in orders.ok("tail", TOPIC, "--from-start", "--limit", "2", "--json").json_lines] == [
        1,
        2,
    ]


def test_tail_of_a_missing_topic_names_it(cli: Cli) -> None:
    result = cli("tail", "no-such-topic")
    assert result.code == 1
    assert "no-such-topic" in result.err


def test_tail_leaves_no_trace(orders: Cli, rows: Callable[..., list[tuple[Any, ...]]]) -> None:
    orders.ok("publish", TOPIC, "1")
    before = rows("SELECT * FROM clientmgr.log_counter"), rows("SELECT * FROM clientmgr.consumer_offsets")
    assert len(logged(orders)) == 1
    assert (rows("SELECT * FROM clientmgr.log_counter"), rows("SELECT * FROM clientmgr.consumer_offsets")) == before


def test_tail_says_that_it_reads_the_log_only(database: Database, tmp_path: Path) -> None:
    result = Cli.on(database, tmp_path, BROKER="pubsub")("tail", TOPIC)
    assert result.code == 2
    assert "BROKER=pubsub" in result.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tail_follows_until_a_signal_ends_it_with_exit_code_0(orders: Cli, number: signal.Signals) -> None:
    # So long a polling interval that only a notification can explain what comes sooner.
    environment = {**os.environ, **orders.environment, "BROKER_WAIT_PERIOD_MS": "60000"}
    with subprocess.Popen(
        [CLIENTMGR, "tail", TOPIC, "--json"], env=environment, stdout=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None
        lines: list[str] = []
        reader = threading.Thread(target=lines.extend, args=(tail.stdout,))
        reader.start()

        def seen() -> bool:
            orders.ok("publish", TOPIC, '{"late": true}')
            return bool(lines)

        eventually(seen, "a message is printed")
        tail.send_signal(number)
        assert tail.wait(20) == 0
        reader.join()
    assert json.loads(lines[0])["data"] == {"late": True}


def test_topics_tells_who_is_behind(
    orders: Cli, database: Database, settings_for: Callable[[Database], Settings]
) -> None:
    async def fail(batch: Batch) -> list[Outcome]:
        return [Dead("no", "Bad"), *[Retry(3600) for _ in batch.messages[1:]]]

    async def consume() -> None:
        async with PostgresBroker(database, settings_for(database)) as broker:
            await broker.ensure_subscription("busy", TOPIC)
            await broker.ensure_subscription("idle", TOPIC)
            await broker.consume("busy", fail, burst=True)

    orders.ok("publish", TOPIC, "-", stdin=b'{"customerId":1}\n{"customerId":1}\n')
    asyncio.run(consume())
    (found,) = [item for item in orders.ok("topics", "--json").json if item["topic"] == TOPIC]
    assert (found["partitions"], found["last_offset"]) == (16, 2)
    busy, idle = found["subscriptions"]
    assert (busy["unread"], busy["retries"], busy["dead_letters"], busy["oldest_unread"]) == (0, 1, 1, None)
    assert (idle["unread"], idle["retries"], idle["dead_letters"]) == (2, 0, 0)
    assert idle["oldest_unread_s"] >= 0
    table = orders.ok("topics").out
    assert "busy" in table
    assert "outbox" in table


def test_topics_resize_changes_the_partitions_and_refuses_nonsense(orders: Cli) -> None:
    orders.ok("topics", "resize", TOPIC, "4")
    assert {item["topic"]: item["partitions"] for item in orders.ok("topics", "--json").json}[TOPIC] == 4
    assert orders("topics", "resize", TOPIC, "0").code == 2
    assert orders("topics", "resize", "no-such-topic", "4").code == 1


def test_topics_drop_subscription_asks_and_forgets_a_reader(
    orders: Cli, database: Database, settings_for: Callable[[Database], Settings]
) -> None:
    async def subscribe() -> None:
        async with PostgresBroker(database, settings_for(database)) as broker:
            await broker.ensure_subscription("idle", TOPIC)
            await broker.ensure_subscription("busy", TOPIC)

    def readers() -> list[str]:
        (found,) = [item for item in orders.ok("topics", "--json").json if item["topic"] == TOPIC]
        return [reader["subscription"] for reader in found["subscriptions"]]

    asyncio.run(subscribe())
    orders.ok("publish", TOPIC, "-", stdin=b"1\n2\n")
    refused = orders("topics", "drop-subscription", "idle", stdin=b"n\n")
    assert refused.code == 1
    assert "Drop idle, with 2 unread messages?" in refused.err
    assert readers() == ["busy", "idle"]
    orders.ok("topics", "drop-subscription", "idle", "--yes")
    assert readers() == ["busy"]
    assert orders("topics", "drop-subscription", "idle", "--yes").code == 1


def test_topics_drop_subscription_forgets_one_of_the_gateway_and_its_leases(
    orders: Cli,
    database: Database,
    settings_for: Callable[[Database], Settings],
    rows: Callable[..., list[tuple[Any, ...]]],
) -> None:
    async def lease_a_message() -> str:
        settings = settings_for(database).model_copy(update={"pubsub_gateway_port": 0})
        async with Gateway(settings, database) as gateway:
            client = PubSubClient(settings.model_copy(update={"pubsub_emulator_host": gateway.address}))
            await client.open()
            name, topic = client.subscription_path("idle"), client.topic_path(TOPIC)
            await client.create_subscription(Subscription(name=name, topic=topic))
            await client.publish(TOPIC, [to_proto(Message(b"1"))])
            assert len(await client.pull("idle", TOPIC, 1, 5.0)) == 1
            await client.close()
        return name

    orders.ok("topics", "drop-subscription", asyncio.run(lease_a_message()), "--yes")
    for table in ("gateway_subscriptions", "gateway_cursors", "gateway_deliveries", "consumer_offsets"):
        assert rows(f"SELECT * FROM clientmgr.{table}") == []


def test_topics_trim_with_fewer_hours_leaves_topics_that_nobody_reads_unless_named(orders: Cli) -> None:
    orders.ok("publish", TOPIC, "1")
    assert orders.ok("topics", "trim", "--hours", "0", "--json").json == {"deleted": 0}
    assert orders.ok("topics", "trim", TOPIC, "--hours", "0", "--json").json == {"deleted": 1}


def test_topics_trim_deletes_what_nobody_needs(orders: Cli) -> None:
    orders.ok("publish", TOPIC, "-", stdin=b"1\n2\n")
    assert orders.ok("topics", "trim", TOPIC, "--json").json == {"deleted": 0}
    assert orders.ok("topics", "trim", TOPIC, "--hours", "0", "--json").json == {"deleted": 2}
    assert orders("topics", "trim", "no-such-topic").code == 1


@pytest.mark.parametrize("topic", ["client-manager.writer", "client-manager.account-deletion"])
def test_a_topic_that_a_daemon_reads_can_be_published_to_before_it_ran(cli: Cli, topic: str) -> None:
    assert cli.ok("publish", topic, '{"customerId": 5}').out == f"published 1 to {topic}\n"
