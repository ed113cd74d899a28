"""What travels on each topic: the Struct behind it, who is outside, and an example. One entry a topic."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from clientmgr.contracts import deletions, device_events, sending, topics, verdicts
from clientmgr.contracts import lifecycle as tenant_messages
from clientmgr.contracts.providers import PROVIDERS, Provider
from clientmgr.contracts.topics import DEVICE_MAPPER_ERRORS, NOT_SENT
from clientmgr.sending import mapping
from clientmgr.sending.assemble.stored import StoredAssembler
from clientmgr.sending.providers import ASSEMBLERS
from tools.docs.daemon_facts import general

GOLDEN: Final = Path(__file__).resolve().parent.parent.parent / "tests" / "device_mapper" / "golden"
"""What the device mapper really makes of messages; its own tests compare byte by byte."""
EXAMPLES: Final = {"fcm": "fcm-fid-plain", "huawei": "huawei-rich", "vapid": "webpush-plain", "inbox": "inbox-rich"}
"""The golden file that a provider's topic is shown with; else the one called <provider>-plain."""

AT: Final = 1763248000123
IDENTITY: Final = {
    "customerId": 1001,
    "applicationCode": "EMS11-C3FD3",
    "clientId": "a8a4c4d0-2b1f-4c55-9a3e-0f1c1f3a9b7e",
}
ERROR_ATTRIBUTES: Final = {"error": "what was wrong, with the field's name", "errorClass": "its kind"}


@dataclass(frozen=True)
class Carried:
    """What a topic carries."""

    topic: str
    tells: str
    struct: type[Struct] | None = None
    """None: the messages of another topic, as they were."""
    replaced: Mapping[str, Any] = field(default_factory=dict)
    """What fields of the Struct hold that it keeps as bytes."""
    payloads: Mapping[str, type[Struct]] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    published_from_outside: str = ""
    read_outside: str = ""
    example: Any = None
    decode: Callable[[bytes], object] | None = None
    """The decoder that the reader goes by: the example has to pass it."""


def _golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def _sent(provider: Provider) -> Carried:
    assembler = ASSEMBLERS.get(provider.name, StoredAssembler)
    return Carried(
        f"sending-<batch|tx>-{provider.topic}-<dg>",
        f"One message for {provider.title}, its `request` ready to be sent.",
        mapping.OutMessage,
        {"request": assembler.request_type},
        read_outside=f"the sender for {provider.title}",
        example=_golden(EXAMPLES.get(provider.name, f"{provider.name}-plain")),
    )


def _verdict(topic: str) -> Callable[[bytes], object]:
    return lambda data: verdicts.decode_verdict(topic, data)


ALL: Final = (
    Carried(
        topics.WRITER,
        "What happens to a device. Late, twice and in any order: the outcome is the same.\n\n"
        "A link names its contact, and a merge both of its contacts. Publishers give the id, which is required. Where "
        "a contact was deleted, [erasure](erasure.md) leaves its keyed hash in the place of the id; never both.",
        device_events.ClientEvent,
        {"payload": dict[str, Any]},
        {
            "client.registered, client.updated": device_events.InfoPayload,
            "client.pushTokenSet": device_events.PushTokenPayload,
            "client.contactLinked": device_events.ContactPayload,
            "client.contactMerged": device_events.ContactMergePayload,
        },
        published_from_outside="whoever hears from devices",
        example={
            "eventId": "3f0c8b1e-5d0a-4a57-8f0e-6b8a3c1d2e4f",
            "eventType": "client.updated",
            **IDENTITY,
            "occurredAt": AT,
            "payload": {"platform": "ios", "applicationVersion": "4.10.0", "language": "hu-HU", "pushEnabled": True},
        },
        decode=device_events.decode_event,
    ),
    Carried(
        topics.REPUBLISHER,
        f"Messages of `{topics.WRITER}` that may succeed later, unchanged.",
        attributes={
            "retryCount": "1 to 5; waiting for an activation does not change it",
            "firstPublishedAt": "of an event whose customer was unknown: when it was first published, in epoch ms",
        },
    ),
    Carried(
        topics.WRITER_ERRORS,
        f"Messages of `{topics.WRITER}` that can't be written, unchanged.",
        attributes={**ERROR_ATTRIBUTES, "retryCount": "how often it was tried again, 0 to 5"},
        read_outside="operators",
    ),
    Carried(
        topics.PUSH_TOKEN_STATUS,
        "A provider's verdict on a push token.",
        verdicts.PushStatus,
        published_from_outside="the push senders",
        example={
            "eventId": "v-1",
            **IDENTITY,
            "pushToken": "740f4707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bb78ad",
            "status": "invalid",
            "reason": "Unregistered",
            "occurredAt": AT,
        },
        decode=_verdict(topics.PUSH_TOKEN_STATUS),
    ),
    Carried(
        topics.WEB_PUSH_TOKEN_STATUS,
        "A push service's verdict on a browser's subscription.",
        verdicts.WebPushStatus,
        published_from_outside="the web push sender",
        example={
            "eventId": "v-2",
            **IDENTITY,
            "endpoint": "https://push.example.com/send/f1LsxkKphfQ",
            "status": "invalid",
            "reason": "410 Gone",
            "occurredAt": AT,
        },
        decode=_verdict(topics.WEB_PUSH_TOKEN_STATUS),
    ),
    Carried(
        topics.ACTIVATE_CUSTOMER,
        "A customer is to have a schema.",
        tenant_messages.ActivateCustomer,
        published_from_outside="whoever manages accounts",
        example={"eventId": "a-1", "customerId": 1001, "occurredAt": AT},
        decode=tenant_messages.decode_activation,
    ),
    Carried(
        topics.ACCOUNT_DELETION,
        "A customer's schema and all that belongs to it are to go.",
        tenant_messages.DeleteAccount,
        published_from_outside="whoever manages accounts",
        example={"eventId": "d-1", "customerId": 1001, "requestedBy": "support@example.com", "occurredAt": AT},
        decode=tenant_messages.decode_deletion,
    ),
    Carried(
        topics.CONTACT_DELETION,
        "A contact is deleted; so are its devices.",
        deletions.ContactDeletion,
        published_from_outside="whoever manages contacts",
        example={"eventId": "c-1", "customerId": 1001, "contactId": 10237, "deletedAt": AT},
        decode=deletions.decode_deletion,
    ),
    Carried(
        topics.CONTACT_DELETION_ERRORS,
        f"Messages of `{topics.CONTACT_DELETION}` that can't be done, unchanged.",
        attributes=ERROR_ATTRIBUTES,
        read_outside="operators",
    ),
    Carried(
        general("sending-batch-devicemapper-dg00"),
        "A personalised message for contacts. `filter` is described in [device_mapper.md](device_mapper.md).",
        sending.SendingMessage,
        published_from_outside="whoever sends campaigns (`batch`) and single messages (`tx`)",
        example={
            "messageId": "m-1",
            "customerId": 1001,
            "applicationCode": "EMS11-C3FD3",
            "campaignId": "9001",
            "channel": "push",
            "expiresAt": AT + 3_600_000,
            "options": {"priority": "high", "collapseId": "order-7", "appleTopic": "com.example.app"},
            "filter": {"all": [{"field": "applicationVersion", "op": ">=", "value": "4.10"}]},
            "defaultLanguage": "en",
            "recipients": [{"contactId": 10237, "contents": {"en": {"title": "Hi", "body": "It is on its way."}}}],
        },
        decode=sending.decode_message,
    ),
    *map(_sent, PROVIDERS),
    Carried(
        NOT_SENT,
        "A contact that a message reached on no device, and why.",
        mapping.NotSent,
        read_outside="the data platform",
        example={
            "messageId": "m-1",
            "customerId": 1001,
            "contactId": 10237,
            "campaignId": "9001",
            "channel": "push",
            "reason": "MISSING_PUSH_TOKEN",
            "devices": [{"clientId": IDENTITY["clientId"], "reason": "MISSING_PUSH_TOKEN"}],
            "occurredAt": AT,
        },
    ),
    Carried(
        DEVICE_MAPPER_ERRORS,
        "Messages of the device mapper's topics that can't be mapped, unchanged.",
        attributes=ERROR_ATTRIBUTES,
        read_outside="operators",
    ),
)
