"""A message that leaves something to its application: completed from the configuration, or refused as a whole."""

from typing import Any

import pytest

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.topics import DEVICE_MAPPER_ERRORS, NOT_SENT
from clientmgr.tenants.applications import ApplicationChange, set_application
from tests.device_mapper.conftest import ON_THE_LOG, add_device
from tests.device_mapper.samples import APPLICATION, decoded, recipient
from tests.device_mapper.test_mapper import POSTGRES_ONLY, mapper, run, sending
from tests.streaming.rig import Rig

pytestmark = pytest.mark.anyio

APPLE, FCM = "sending-tx-push-apple-dg00", "sending-tx-push-fcm-dg00"
WITHOUT_TOPIC: dict[str, Any] = {"options": {"priority": "high"}}


def configure(rig: Rig, **fields: Any) -> None:
    with rig.database.connect(Role.WRITER) as connection:
        audit = AuditLogger.from_settings(rig.settings)
        set_application(connection, audit, CustomerId(7), APPLICATION, ApplicationChange(**fields), actor="test")


def topics(rig: Rig) -> list[str]:
    return [one.event["request"]["headers"]["apns-topic"] for one in rig.topic(APPLE)]


@ON_THE_LOG
@pytest.mark.parametrize("options", [{}, {"appleTopic": None}, {"appleTopic": ""}, {"silent": True}])
async def test_a_message_without_a_topic_gets_its_applications(rig: Rig, options: dict[str, Any]) -> None:
    configure(rig, apple_topic="com.acme.configured")
    add_device(rig, 42, "iphone")
    await run(rig, sending(options=options), sending(messageId="m-2"))
    assert sorted(topics(rig)) == ["com.acme.app", "com.acme.configured"]
    assert rig.topic(DEVICE_MAPPER_ERRORS) == []


@ON_THE_LOG
async def test_without_any_topic_a_message_with_an_apple_device_is_refused_as_a_whole(rig: Rig) -> None:
    add_device(rig, 42, "iphone")
    add_device(rig, 43, "pixel", platform="android", provider="fcm", push_token_kind="fcm_token")
    bodies = await run(rig, sending(**WITHOUT_TOPIC, recipients=[recipient(43), recipient(42), recipient(44)]))
    (refused,) = rig.topic(DEVICE_MAPPER_ERRORS)
    assert refused.data == bodies[0]
    assert refused.attributes["errorClass"] == "InvalidMessageError"
    assert refused.attributes["error"].startswith("options.appleTopic: ")
    assert APPLICATION in refused.attributes["error"]
    assert [*rig.topic(APPLE), *rig.topic(FCM), *rig.topic(NOT_SENT)] == []

    # Once somebody has configured it, the same message reaches everybody.
    configure(rig, apple_topic="com.acme.configured")
    await rig.publish(refused.data, topic="sending-tx-devicemapper-dg00")
    await rig.burst(mapper(), **POSTGRES_ONLY)
    assert (topics(rig), len(rig.topic(FCM)), len(rig.topic(NOT_SENT))) == (["com.acme.configured"], 1, 1)


@ON_THE_LOG
async def test_without_any_topic_a_message_that_no_apple_device_gets_is_sent(rig: Rig) -> None:
    add_device(rig, 42, "iphone", push_enabled=False)
    add_device(rig, 42, "old", push_token_status="invalid")
    add_device(rig, 43, "pixel", platform="android", provider="fcm", push_token_kind="fcm_token")
    add_device(rig, 44, "firebase", provider="fcm", push_token_kind="fcm_token")
    await run(rig, sending(**WITHOUT_TOPIC, recipients=[recipient(42), recipient(43), recipient(44)]))
    assert sorted(one.event["clientId"] for one in rig.topic(FCM)) == ["firebase", "pixel"]
    assert [one.event["reason"] for one in rig.topic(NOT_SENT)] == ["INVALID_PUSH_TOKEN"]
    assert rig.topic(DEVICE_MAPPER_ERRORS) == []


@ON_THE_LOG
async def test_the_default_language_is_the_messages_own_or_else_the_applications(rig: Rig) -> None:
    configure(rig, default_language="fr")
    add_device(rig, 42, "hungarian", language="hu")
    await run(rig, sending(defaultLanguage=None), sending(messageId="m-2", defaultLanguage="en"))
    assert sorted((one.event["messageId"], one.event["language"]) for one in rig.topic(APPLE)) == [
        ("m-1", "fr"),
        ("m-2", "en"),
    ]


@pytest.mark.parametrize("topic", [" ", "com acme", "com.acme\r\nx: y", "äpp", ".", "a" * 256])
async def test_a_topic_that_apple_could_not_know_is_refused(topic: str) -> None:
    with pytest.raises(InvalidMessageError, match=r"options\.appleTopic"):
        decoded(options={"appleTopic": topic})
