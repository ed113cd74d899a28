"""A message of each channel arrives where senders read, by the contracts' literal names, and nowhere else."""

import json
from typing import Any

import pytest

from clientmgr.contracts.topics import DeviceMapperTopics, SendingType
from streaming.device_mapper.mapper import daemon
from tests.device_mapper.conftest import add_device
from tests.device_mapper.samples import SUBSCRIPTION, message
from tests.streaming.rig import Rig

pytestmark = pytest.mark.anyio

HUAWEI: dict[str, Any] = {"platform": "android-huawei", "provider": "huawei", "push_token_kind": "hms"}
BROWSER: dict[str, Any] = {
    "platform": "web",
    "provider": "vapid",
    "push_token": None,
    "push_token_kind": "webpush",
    "web_push": SUBSCRIPTION,
}
ARRIVES = {
    "push": ("sending-{type}-push-huawei-{dg}", "phone"),
    "webpush": ("sending-{type}-webpush-vapid-{dg}", "browser"),
    "inbox": ("sending-{type}-inbox-{dg}", None),
    "em": ("sending-{type}-em-{dg}", None),
}
FILLED = """
    SELECT DISTINCT c.topic FROM clientmgr.outbox_message_t AS m JOIN clientmgr.log_counter AS c ON c.id = m.topic_id
    WHERE c.topic LIKE 'sending-%' AND c.topic NOT LIKE '%-devicemapper-%' OR c.topic = 'data-platform.not-sent'
"""


@pytest.mark.parametrize(("sending_type", "group"), [("tx", "dg00"), ("batch", "dg07")])
@pytest.mark.parametrize("channel", ARRIVES)
async def test_a_message_of_each_channel_arrives_in_its_topic_and_in_no_other(
    rig: Rig, channel: str, sending_type: SendingType, group: str
) -> None:
    add_device(rig, 42, "phone", **HUAWEI)
    add_device(rig, 42, "browser", **BROWSER)
    sent = message(channel=channel, expiresAt=4_000_000_000_000, messageId=f"of-{channel}")
    await rig.publish(sent, topic=f"sending-{sending_type}-devicemapper-{group}")
    await rig.burst(daemon(DeviceMapperTopics(sending_type, group)), client_fetcher_fallback_enabled=False)

    topic, client = ARRIVES[channel]
    topic = topic.format(type=sending_type, dg=group)
    assert rig.query(FILLED) == [(topic,)]
    (arrived,) = [one.event for one in rig.topic(topic)]
    assert (arrived["messageId"], arrived["contactId"], arrived["clientId"]) == (f"of-{channel}", 42, client)
    assert says(channel, arrived["request"]) == "Hi"


def says(channel: str, request: dict[str, Any]) -> Any:
    """The title, in the provider's own place."""
    match channel:
        case "push":
            return request["message"]["android"]["notification"]["title"]
        case "webpush":
            return json.loads(request["plaintext"])["title"]
        case _:
            return request["title"]
