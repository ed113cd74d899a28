"""What the device mapper's tests are made of: messages and devices."""

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import settings

from clientmgr.contracts.sending import SendingMessage, decode_message
from clientmgr.devices.contact_devices import ADDRESS_FIELDS, ContactDevice

unhurried = settings(deadline=None)
"""For properties: how long an example takes says more of the machine than of the code."""

NOW = 1_763_248_000_123
APPLICATION = "EMS11-C3FD3"

APNS_TOKEN = "740f4707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bb78ad"
SUBSCRIPTION = {
    "endpoint": "https://push.example.com/send/f1LsxkKphfQ",
    "keys": {
        "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "auth": "BTBZMqHH6r4Tts7J_aSIgg",
    },
}


def as_read(one: ContactDevice, fields: Iterable[str]) -> ContactDevice:
    """A device as the daemon reads it: with its address and these fields."""
    return ContactDevice(**{name: getattr(one, name) for name in {*ADDRESS_FIELDS, *fields}})


def message(**changes: Any) -> dict[str, Any]:
    """A message of the mapper's topic, as JSON has it."""
    return {
        "messageId": "m-1",
        "customerId": 7,
        "applicationCode": APPLICATION,
        "campaignId": "9001",
        "channel": "push",
        "expiresAt": NOW + 3_600_000,
        "options": {"priority": "high", "collapseId": "order-7", "silent": False, "appleTopic": "com.acme.app"},
        "defaultLanguage": "en",
        "recipients": [recipient(42)],
        **changes,
    }


def recipient(contact_id: int, **contents: Any) -> dict[str, Any]:
    default = {"en": {"title": "Hi", "body": "Your order is here"}, "fr": {"title": "Salut", "body": "Elle est là"}}
    return {"contactId": contact_id, "contents": contents or default}


def decoded(**changes: Any) -> SendingMessage:
    return decode_message(msgspec.json.encode(message(**changes)))[1]


def device(client_id: str = "c1", **changes: Any) -> ContactDevice:
    """An iPhone that can be reached; a kind of token decides the provider."""
    providers = {"apns": "apple", "fcm_token": "fcm", "fcm_fid": "fcm", "hms": "huawei", "webpush": "vapid"}
    kind = changes.get("push_token_kind", "apns")
    values: dict[str, Any] = {
        "contact_id": 42,
        "platform": "ios",
        "provider": providers.get(kind, "none"),
        "push_enabled": True,
        "push_token": APNS_TOKEN,
        "push_token_kind": kind,
        "push_token_status": "valid",
        "language": "en",
        "application_version": "4.10.2",
        "os_version": "17.4",
    }
    return ContactDevice(client_id=client_id, **{**values, **changes})


def browser(client_id: str = "w1", **changes: Any) -> ContactDevice:
    values = {"platform": "web", "push_token": None, "web_push": msgspec.json.encode(SUBSCRIPTION).decode()}
    return device(client_id, push_token_kind="webpush", **{**values, **changes})
