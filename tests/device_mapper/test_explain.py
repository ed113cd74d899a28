"""`clientmgr device-mapper explain`: what support people are told."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clientmgr.contracts.topics import DeviceMapperTopics
from streaming.device_mapper.mapper import daemon
from tests.cli.calling import Cli
from tests.device_mapper.conftest import ON_THE_LOG, add_device
from tests.device_mapper.dynamodb import DynamoDb
from tests.device_mapper.samples import APPLICATION, SUBSCRIPTION, message, recipient
from tests.streaming.rig import Rig

pytestmark = [pytest.mark.anyio, ON_THE_LOG]
# A command runs a loop of its own, and so can't be called inside one.

FAR = 4_000_000_000_000
FILTER = {"all": [{"field": "platform", "op": "in", "value": ["ios", "android"]},
                  {"field": "applicationVersion", "op": ">=", "value": "4.10"}]}  # fmt: skip


@pytest.fixture
def cli(rig: Rig) -> Cli:
    return Cli.on(rig.database, rig.settings.data_dir, CLIENT_FETCHER_FALLBACK_ENABLED="false")


def written(folder: Path, **changes: Any) -> str:
    file = folder / "message.json"
    file.write_text(json.dumps(message(**{"expiresAt": FAR, **changes})))
    return str(file)


def explained(cli: Cli, file: str, *more: str) -> Any:
    options = ("--customer", "7", "--contact", "42", "--message", file, "--json", *more)
    return cli.ok("device-mapper", "explain", *options).json


def add_devices(rig: Rig) -> None:
    add_device(rig, 42, "good", application_version="4.10.1", language="zh-TW", push_token="0123456789" * 5)
    add_device(rig, 42, "old", application_version="4.9")
    add_device(rig, 42, "muted", application_version="5", push_enabled=False)
    add_device(rig, 42, "browser", platform="web", provider="vapid", push_token=None, web_push=SUBSCRIPTION)


def test_it_tells_device_by_device_what_happens_and_why(rig: Rig, cli: Cli, tmp_path: Path) -> None:
    add_devices(rig)
    contents = {"en": {"title": "Hi"}, "zh-Hant": {"title": "你好"}}
    told = explained(cli, written(tmp_path, filter=FILTER, recipients=[recipient(42, **contents)]))

    assert (told["strategy"], told["reason"]) == ("postgres", None)
    by_client = {one["clientId"]: one for one in told["devices"]}
    assert {client: (one["verdict"], one["store"]) for client, one in by_client.items()} == {
        "good": ("SENT", "postgres"),
        "old": ("CRITERIA", "postgres"),
        "muted": ("PUSH_DISABLED", "postgres"),
        "browser": ("SKIPPED", "postgres"),
    }
    assert by_client["old"]["because"] == ["applicationVersion >= \"4.10\": the device has '4.9'"]
    assert (by_client["good"]["deviceLanguage"], by_client["good"]["language"]) == ("zh-TW", "zh-Hant")
    assert by_client["good"]["topic"] == "sending-batch-push-apple-dg00"
    assert by_client["good"]["request"]["payload"]["aps"]["alert"]["title"] == "你好"


def test_without_a_message_it_explains_a_sample_to_the_contacts_application(rig: Rig, cli: Cli) -> None:
    add_devices(rig)
    told = cli.ok("device-mapper", "explain", "--customer", "7", "--contact", "42", "--json").json
    assert {one["clientId"]: one["verdict"] for one in told["devices"]}["good"] == "SENT"
    nobody = cli("device-mapper", "explain", "--customer", "7", "--contact", "43")
    assert (nobody.code, "--contact: expected one that has a device" in nobody.err) == (2, True)


async def test_what_it_tells_is_what_the_daemon_does(rig: Rig, cli: Cli, tmp_path: Path) -> None:
    add_devices(rig)
    told = await asyncio.to_thread(explained, cli, written(tmp_path, filter=FILTER), "--reveal", "--type", "tx")
    topics = DeviceMapperTopics("tx", "dg00")
    await rig.publish(message(expiresAt=FAR, filter=FILTER), topic=topics.input)
    await rig.burst(daemon(topics), client_fetcher_fallback_enabled=False)

    (sent,) = rig.topic(topics.outputs["apple"])
    (promised,) = [one for one in told["devices"] if one["verdict"] == "SENT"]
    assert promised["request"] == sent.event["request"]
    assert (promised["outMessageId"], promised["topic"]) == (sent.event["outMessageId"], topics.outputs["apple"])


def test_tokens_are_masked_unless_somebody_answers_for_it(rig: Rig, cli: Cli, tmp_path: Path) -> None:
    add_devices(rig)
    file = written(tmp_path)
    assert "0123456789" not in json.dumps(explained(cli, file))
    assert "0123456789" in json.dumps(explained(cli, file, "--reveal"))
    (row,) = cli.ok("audit", "list", "--customer", "7", "--action", "device.reveal", "--json").json
    assert row["details"] == {"command": "device-mapper explain"}


def test_devices_from_the_legacy_store_are_told_apart(rig: Rig, cli: Cli, tmp_path: Path, dynamodb: DynamoDb) -> None:
    dynamodb.put(7, 42, APPLICATION, "legacy")
    settings = {"CLIENT_FETCHER_FALLBACK_ENABLED": "true", "DYNAMODB_ENDPOINT": dynamodb.url}
    told = explained(Cli.on(rig.database, rig.settings.data_dir, **settings), written(tmp_path))
    assert told["strategy"] == "dynamodb"
    assert [(one["clientId"], one["store"], one["verdict"]) for one in told["devices"]] == [
        ("legacy", "dynamodb", "SENT")
    ]


def test_for_the_inbox_one_device_stands_for_the_contact(rig: Rig, cli: Cli, tmp_path: Path) -> None:
    add_device(rig, 42, "seen-last", last_seen_at="2026-01-02T00:00:00Z")
    add_device(rig, 42, "seen-before", last_seen_at="2026-01-01T00:00:00Z")
    told = explained(cli, written(tmp_path, channel="inbox"))
    assert [(one["clientId"], one["verdict"]) for one in told["devices"]] == [
        ("seen-last", "SENT"),
        ("seen-before", "SKIPPED"),
    ]


def test_it_reads_like_an_answer(rig: Rig, cli: Cli, tmp_path: Path) -> None:
    add_devices(rig)
    file = written(tmp_path, filter=FILTER, expiresAt=1)
    out = cli.ok("device-mapper", "explain", "--customer", "7", "--contact", "42", "--message", file).out
    assert "not sent: EXPIRED" in out
    assert "the device has '4.9'" in out
    assert "its user has turned push off" in out


@pytest.mark.parametrize(
    ("customer", "contact", "code", "says"),
    [("8", "42", 2, "--customer"), ("7", "43", 2, "--contact"), ("x", "42", 2, "--customer")],
)
def test_a_question_that_does_not_fit_the_message_is_refused(
    cli: Cli, tmp_path: Path, customer: str, contact: str, code: int, says: str
) -> None:
    file = written(tmp_path)
    result = cli("device-mapper", "explain", "--customer", customer, "--contact", contact, "--message", file)
    assert (result.code, says in result.err) == (code, True)


def test_a_wrong_message_is_an_error_that_names_the_field(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path, filter={"field": "shoeSize", "op": "="})
    result = cli("device-mapper", "explain", "--customer", "7", "--contact", "42", "--message", file)
    assert (result.code, "filter.field" in result.err) == (1, True)
    assert cli("device-mapper", "explain", "-c", "7", "--contact", "42", "--message", "/no/such/file").code == 2


def test_explain_shows_the_topic_that_was_filled_in_or_why_the_message_is_refused(
    rig: Rig, cli: Cli, tmp_path: Path
) -> None:
    add_device(rig, 42, "iphone")
    file = written(tmp_path, options={"priority": "high"})
    told = explained(cli, file)
    assert (told["reason"], told["devices"][0]["verdict"]) == (None, "REFUSED")
    assert told["refusal"].startswith("options.appleTopic: ")
    assert (
        "nobody gets it: options.appleTopic"
        in cli.ok("device-mapper", "explain", "-c", "7", "--contact", "42", "--message", file).out
    )
    cli.ok("applications", "set", APPLICATION, "-c", "7", "--apple-topic", "com.acme.configured")
    told = explained(cli, file)
    assert told["refusal"] is None
    assert told["devices"][0]["request"]["headers"]["apns-topic"] == "com.acme.configured"
