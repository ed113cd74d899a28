"""`clientmgr failures …`: what it shows, asks, does and leaves alone."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Batch, Dead, Message, Outcome
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.cli.failure_filters import parse_moment
from tests.cli.calling import Cli

TOPIC, SUBSCRIPTION = "orders", "orders-reader"
TOKEN = "token-that-nobody-may-see-0123456789"
SECRET_EVENT = f'{{"pushToken":"{TOKEN}","v":1.10}}'


@pytest.fixture
def cli(database: Database, settings_for: Callable[[Database], Settings], tmp_path: Path) -> Cli:
    """Three letters, with the ids 1 to 3: two of customer 1, one of customer 2."""

    async def fail(batch: Batch) -> list[Outcome]:
        return [Dead(f"[bold]no[/] to {message.key}", "BadThing") for message in batch.messages]

    async def bury() -> None:
        async with PostgresBroker(database, settings_for(database)) as broker:
            await broker.ensure_topic(TOPIC)
            await broker.ensure_subscription(SUBSCRIPTION, TOPIC)
            for number, tenant in enumerate(["1", "1", "2"]):
                data = b'{"eventId":"e%d","v":1.10}' % number
                await broker.publish(TOPIC, [Message(data, tenant, f"k{number}", {"a": "b"})])
                await broker.consume(SUBSCRIPTION, fail, burst=True)

    asyncio.run(bury())
    return Cli.on(database, tmp_path)


def open_ids(cli: Cli) -> list[str]:
    return sorted(letter["id"] for letter in cli.ok("failures", "list", "--json").json)


def test_list_shows_the_newest_first_and_obeys_the_filters(cli: Cli) -> None:
    assert [letter["id"] for letter in cli.ok("failures", "list", "--json").json] == ["d3", "d2", "d1"]
    assert [letter["id"] for letter in cli.ok("failures", "list", "--limit", "1", "--json").json] == ["d3"]
    assert [letter["id"] for letter in cli.ok("failures", "list", "-c", "2", "--json").json] == ["d3"]
    assert [letter["id"] for letter in cli.ok("failures", "list", "--contains", '"e1"', "--json").json] == ["d2"]
    assert cli.ok("failures", "list", "--group", "other").out == "no failed messages\n"
    assert cli.ok("failures", "list", "--until", "1h", "--json").json == []
    assert len(cli.ok("failures", "list", "--since", "1h", "--json").json) == 3


def test_the_table_shows_errors_as_they_are(cli: Cli) -> None:
    assert "BadThing: [bold]no[/] to k2" in cli.ok("failures", "list").out


def test_list_count_counts_by_error_tenant_and_topic(cli: Cli) -> None:
    counts = cli.ok("failures", "list", "--count", "--json").json
    assert [(one["messages"], one["tenant"], one["error_class"], one["topic"]) for one in counts] == [
        (2, "1", "BadThing", TOPIC),
        (1, "2", "BadThing", TOPIC),
    ]


def test_show_prints_the_contents_indented_and_the_error(cli: Cli) -> None:
    shown = cli.ok("failures", "show", "1").out
    assert '{\n  "eventId": "e0",\n  "v": 1.10\n}' in shown
    assert "attributes: a=b" in shown
    assert "[bold]no[/] to k0" in shown


def test_show_as_json_has_the_message_as_json(cli: Cli) -> None:
    result = cli.ok("failures", "show", "1", "2", "--json")
    assert [letter["data"] for letter in result.json] == [{"eventId": "e0", "v": 1.1}, {"eventId": "e1", "v": 1.1}]
    assert '"v": 1.10' in result.out


@pytest.fixture
def secretive(cli: Cli, database: Database) -> Cli:
    """Letter 1 has a push token in it."""
    with database.connect(Role.OWNER) as connection:
        connection.execute("UPDATE clientmgr.dead_letter_queue SET payload = %s WHERE id = 1", [SECRET_EVENT.encode()])
    return cli


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "JSON"])
def test_show_masks_tokens_and_says_nothing_to_the_audit_log(secretive: Cli, form: list[str]) -> None:
    shown = secretive.ok("failures", "show", "1", *form).out
    assert TOKEN not in shown
    assert "token-…6789" in shown
    assert '"v": 1.10' in shown, "the rest is as it was published"
    assert secretive.ok("audit", "list", "--customer", "1", "--json").json == []


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "JSON"])
def test_show_reveals_tokens_to_who_asks_and_that_is_audited(secretive: Cli, form: list[str]) -> None:
    assert TOKEN in secretive.ok("failures", "show", "1", "--reveal", *form).out
    (record,) = secretive.ok("audit", "list", "--customer", "1", "--json").json
    assert record["action"] == "dead-letter.reveal"
    assert record["details"] == {"command": "failures show", "message": "d1", "place": "dead letters"}
    assert record["actor"].startswith("cli:")


def test_show_of_a_letter_that_is_not_there_is_exit_code_1(cli: Cli) -> None:
    result = cli("failures", "show", "1", "99")
    assert result.code == 1
    assert "99" in result.err


@pytest.mark.parametrize("command", ["replay", "drop"])
def test_a_dry_run_tells_how_many_and_does_nothing(cli: Cli, command: str) -> None:
    assert f"would {command} 2" in cli.ok("failures", command, "-c", "1", "--dry-run").out
    assert open_ids(cli) == ["d1", "d2", "d3"]


@pytest.mark.parametrize("command", ["replay", "drop"])
def test_without_a_filter_nothing_is_done(cli: Cli, command: str) -> None:
    result = cli("failures", command, "--yes")
    assert result.code == 2
    assert "--all" in result.err
    assert open_ids(cli) == ["d1", "d2", "d3"]


@pytest.mark.parametrize("command", ["replay", "drop"])
def test_whoever_does_not_say_yes_is_asked(cli: Cli, command: str) -> None:
    result = cli("failures", command, "-c", "1", stdin=b"n\n")
    assert result.code == 1
    assert f"{command.capitalize()} 2?" in result.err
    assert open_ids(cli) == ["d1", "d2", "d3"]


def test_replay_puts_the_letters_back_and_is_safe_to_repeat(cli: Cli) -> None:
    (result,) = cli.ok("failures", "replay", "-t", TOPIC, "--yes", "--json").json
    assert (result["replayed"], result["skipped"]) == (3, 0)
    (result,) = cli.ok("failures", "replay", "--id", "1", "--yes", "--json").json
    assert (result["replayed"], result["skipped"]) == (0, 1)
    (result,) = cli.ok("failures", "replay", "--id", "1", "--again", "--yes", "--json").json
    assert (result["replayed"], result["skipped"]) == (1, 0)
    assert open_ids(cli) == []
    (topic,) = [item for item in cli.ok("topics", "--json").json if item["topic"] == TOPIC]
    assert topic["subscriptions"][0]["unread"] == 4


def test_an_edited_message_takes_the_place_of_the_one_that_failed(
    secretive: Cli, database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "mended.json"
    shown = secretive.ok("failures", "show", "1").out
    file.write_text('{"pushToken":"token-…6789","v":1.10,"customerId":2,"extra":[1]}')
    assert "token-…6789" in shown
    assert "would change customerId, extra" in secretive.ok("failures", "edit", "d1", "-f", str(file), "--dry-run").out
    assert secretive.ok("failures", "edit", "d1", "-f", str(file), "--json").json["changed"] == ["customerId", "extra"]
    assert open_ids(secretive) == ["d2", "d3"]
    again = secretive("failures", "edit", "d1", "-f", str(file))
    assert (again.code, "only open ones" in again.err) == (1, True)
    with database.connect(Role.OWNER) as connection:
        newest = connection.execute(
            "SELECT host_id, group_id, convert_from(payload, 'UTF8') FROM clientmgr.outbox_message_t"
            " ORDER BY published_at DESC LIMIT 1"
        ).fetchone()
    assert newest is not None
    assert newest[:2] == ("2", SUBSCRIPTION), "it goes where it says now"
    assert TOKEN in newest[2], "what was left masked is the original again"
    (record,) = secretive.ok("audit", "list", "--json").json[:1]
    assert (record["action"], record["details"]["edited"]) == ("dead-letters.replay", "customerId, extra")
    (replay,) = secretive.ok("failures", "show", "d1", "--json").json[0]["replays"]
    assert (replay["outcome"], replay["changed"]) == ("under way", ["customerId", "extra"])
    for text, field in (("{", "data"), ('{"v":"token-…0000"}', "v"), ('{"eventId":"e1","v":1.10}', "no change")):
        file.write_text(text)
        wrong = secretive("failures", "edit", "d2", "-f", str(file))
        assert (wrong.code, field in wrong.err) == (2, True), wrong.err


def test_a_text_from_the_editor_that_is_refused_is_kept(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor, wrong = tmp_path / "editor", '{"eventId":"mended'
    editor.write_text(f"#!/bin/sh\nprintf '{wrong}' > \"$1\"\n")
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    refused = cli("failures", "edit", "d1")
    (kept,) = tmp_path.glob("clientmgr-d1-*.json")
    assert (refused.code, str(kept) in refused.err) == (2, True), refused.err
    assert kept.read_text() == wrong


def test_the_old_name_still_works(cli: Cli) -> None:
    assert [letter["id"] for letter in cli.ok("dlq", "list", "--json").json] == ["d3", "d2", "d1"]


def test_drop_deletes_and_the_audit_log_tells_who_did_it(cli: Cli) -> None:
    assert cli.ok("failures", "drop", "-c", "1", "-y", "--json").json == {"dropped": 2}
    assert open_ids(cli) == ["d3"]
    (record,) = cli.ok("audit", "list", "--customer", "1", "--json").json
    assert (record["action"], record["rows_affected"]) == ("dead-letters.drop", 2)
    assert record["actor"].startswith("cli:")
    assert cli.ok("audit", "verify").code == 0


@pytest.mark.parametrize("arguments", [["-c", "0"], ["--since", "yesterday"], ["--state", "odd"], ["--id", "x"]])
def test_a_wrong_filter_is_exit_code_2(arguments: list[str], database: Database, tmp_path: Path) -> None:
    assert Cli.on(database, tmp_path)("failures", "list", *arguments).code == 2


def test_moments_are_iso_8601_or_so_long_ago() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert parse_moment("90m", field="x", now=now) == now - timedelta(minutes=90)
    assert parse_moment("2026-01-31T12:00:00Z", field="x") == now
    assert parse_moment("2026-01-31T12:00", field="x").utcoffset() is not None


@pytest.mark.parametrize("text", ["", "1y", "-1h", "١h", "2026-13-01", "now"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="--since"):
        parse_moment(text, field="--since")
