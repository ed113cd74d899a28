"""Whether there is a legacy store, and what a process that needs it finds out at its start."""

import subprocess
import sys
from typing import Any

import pytest
import structlog

from clientmgr.base.errors import SettingsError
from clientmgr.base.settings import Settings, load_settings
from clientmgr.contracts.topics import DEVICE_MAPPER_ERRORS, NOT_SENT, DeviceMapperTopics
from clientmgr.devices.legacy.start_check import check_legacy_store
from clientmgr.orphans.policy import OrphanPolicy
from clientmgr_dagster.spark import sync
from streaming.device_mapper.mapper import consumer_options, daemon
from tests.device_mapper.conftest import ON_THE_LOG, add_device
from tests.device_mapper.dynamodb import DynamoDb, MoodyDynamoDb
from tests.device_mapper.samples import message, recipient
from tests.streaming.rig import Rig

pytestmark = pytest.mark.anyio

TX = DeviceMapperTopics("tx", "dg00")
URL = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)


@pytest.mark.parametrize(
    ("stated", "endpoint", "region", "has_one"),
    [
        ("auto", "", "", False),
        ("auto", URL, "", True),
        ("auto", "", "AWS_REGION", True),
        ("auto", "", "AWS_DEFAULT_REGION", True),
        ("none", URL, "AWS_REGION", False),
        ("dynamodb", "", "", True),
    ],
)
def test_a_legacy_store_is_there_where_it_is_stated_or_visibly_configured(
    stated: str, endpoint: str, region: str, has_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if region:
        monkeypatch.setenv(region, "eu-central-1")
    settings = load_settings(legacy_store=stated, dynamodb_endpoint=endpoint, sync_validation="on")
    assert settings.has_legacy_store is has_one
    assert sync.is_wanted(settings) is has_one
    decided = "dynamodb" if has_one else "none"
    shown = {name: value for name, value, _ in settings.effective()}
    assert (shown["LEGACY_STORE"], settings.environment()["LEGACY_STORE"]) == (decided, decided)


@pytest.mark.parametrize("wrong", [{"dynamodb_endpoint": "localhost:8000"}, {"legacy_store": "mongodb"}], ids=str)
def test_a_wrong_value_is_refused_by_name(wrong: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong)).upper()):
        load_settings(**wrong)


def test_orphans_are_spared_until_somebody_states_that_there_is_no_legacy_store() -> None:
    """A process that merely does not know of one must not delete what another process still reads from it."""
    spared = {
        stated: OrphanPolicy.from_settings(load_settings(legacy_store=stated)).fallback_enabled
        for stated in ("none", "auto", "dynamodb")
    }
    assert spared == {"none": False, "auto": True, "dynamodb": True}


def test_without_a_legacy_store_more_is_taken_in_hand() -> None:
    alone = consumer_options(load_settings(legacy_store="none"))
    assert alone == consumer_options(load_settings(legacy_store="dynamodb", client_fetcher_fallback_enabled=False))
    assert alone != consumer_options(load_settings(legacy_store="dynamodb"))


def test_without_a_legacy_store_nothing_of_aws_is_even_imported() -> None:
    program = """
import asyncio, sys
from clientmgr.base.logs import log_to_stdout
from clientmgr.base.settings import load_settings
from clientmgr.devices.legacy.start_check import check_legacy_store
import streaming.device_mapper.mapper
log_to_stdout()
asyncio.run(check_legacy_store(load_settings(legacy_store="none", dynamodb_endpoint="http://127.0.0.1:1")))
print(sorted(name for name in sys.modules if name.split(".")[0] in ("boto3", "botocore")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "no legacy store" in done.stdout + done.stderr


@ON_THE_LOG
@pytest.mark.parametrize("stated", ["none", "auto"])
async def test_without_a_legacy_store_devices_come_from_postgres_whatever_flippers_say(rig: Rig, stated: str) -> None:
    add_device(rig, 1, "new-1")
    sent = message(messageId="m-1", expiresAt=4_000_000_000_000, recipients=[recipient(1), recipient(2)])
    await rig.publish(sent, topic=TX.input)
    await rig.burst(daemon(TX), legacy_store=stated)
    assert [one.event["clientId"] for one in rig.topic(TX.outputs["apple"])] == ["new-1"]
    assert [one.event["reason"] for one in rig.topic(NOT_SENT)] == ["NO_DEVICES"]
    assert rig.topic(DEVICE_MAPPER_ERRORS) == []


async def checked(settings: Settings) -> list[str]:
    """What it logs."""
    with structlog.testing.capture_logs() as logged:
        await check_legacy_store(settings)
    return [line["event"] for line in logged]


def using(url: str, **others: Any) -> Settings:
    return load_settings(legacy_store="dynamodb", dynamodb_endpoint=url, **others)


async def test_a_store_that_can_be_read_is_started_with(dynamodb: DynamoDb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert await checked(using(dynamodb.url)) == []


async def test_a_store_that_the_mapper_does_not_read_is_not_looked_at() -> None:
    assert await checked(load_settings(legacy_store="dynamodb", client_fetcher_fallback_enabled=False)) == []


async def test_a_store_without_a_region_is_an_error_at_the_start() -> None:
    with pytest.raises(SettingsError, match=r"LEGACY_STORE=dynamodb.*set AWS_REGION.*LEGACY_STORE=none"):
        await checked(load_settings(legacy_store="dynamodb"))


async def test_a_store_without_credentials_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(SettingsError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        await checked(using(URL))


async def test_a_missing_table_is_an_error_at_the_start(dynamodb: DynamoDb) -> None:
    with pytest.raises(SettingsError, match=r"table not-there\).*set DYNAMODB_DEVICES_TABLE"):
        await checked(using(dynamodb.url, dynamodb_devices_table="not-there"))


async def test_a_table_with_other_keys_is_an_error_at_the_start(
    dynamodb: DynamoDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    dynamodb.create_table("other-keys", "id", "deviceKey")
    with pytest.raises(SettingsError, match="contactKey and deviceKey"):
        await checked(using(dynamodb.url, dynamodb_devices_table="other-keys"))


class Answering(MoodyDynamoDb):
    """Says the same to everybody."""

    def __init__(self, status: int, answer: bytes) -> None:
        self.said = status, answer
        super().__init__(None)  # type: ignore[arg-type]

    def answer(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        return self.said


@pytest.mark.parametrize(
    ("status", "answer", "advice"),
    [
        (400, b'{"__type":"x#AccessDeniedException"}', "allow these credentials dynamodb:Query"),
        (400, b'{"__type":"x#UnrecognizedClientException"}', "AWS does not know these credentials"),
        (400, b'{"__type":"x#InvalidSignatureException"}', "our clock is wrong"),
        (400, b'{"__type":"x#ExpiredTokenException"}', "no longer valid"),
        (404, b"<html>Not found</html>", "DYNAMODB_ENDPOINT"),
        (200, b"<html>Welcome</html>", "set DYNAMODB_ENDPOINT to a server that speaks DynamoDB's protocol"),
    ],
)
async def test_a_store_that_refuses_us_is_an_error_at_the_start(status: int, answer: bytes, advice: str) -> None:
    with Answering(status, answer).serving() as url, pytest.raises(SettingsError, match=advice):
        await checked(using(url))


@pytest.mark.parametrize("mood", ["throttling", "silent", "confused", "gone"])
async def test_a_store_that_is_away_or_busy_is_no_error(moody: tuple[MoodyDynamoDb, str], mood: Any) -> None:
    server, url = moody
    server.mood = mood
    logged = await checked(using(url, dynamodb_timeout_ms=200))
    assert logged == ["the legacy store does not answer now: messages that need it wait"]
    assert await checked(using(URL)) == logged


@ON_THE_LOG
async def test_a_mapper_does_not_start_on_a_store_that_is_set_up_wrongly(rig: Rig, dynamodb: DynamoDb) -> None:
    await rig.publish(message(expiresAt=4_000_000_000_000), topic=TX.input)
    wrong = {"dynamodb_endpoint": dynamodb.url, "dynamodb_devices_table": "not-there"}
    with pytest.raises(SettingsError, match="DYNAMODB_DEVICES_TABLE"):
        await rig.burst(daemon(TX), **wrong)
    assert (rig.topic(DEVICE_MAPPER_ERRORS), rig.dead_letters()) == ([], []), "no message was touched"
