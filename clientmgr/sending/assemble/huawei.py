"""Huawei Push Kit, v2: the body of `/v2/{projectId}/messages:send`.

https://developer.huawei.com/consumer/en/doc/HMSCore-References/https-send-api-0000001050986197
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from clientmgr.contracts.sending import Content
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.sending.assemble.interface import Delivery
from clientmgr.sending.assemble.json_objects import merged

MAX_PAYLOAD_BYTES = 4096
LONGEST_TTL_S = 15 * 86_400
COLLAPSE_KEYS = range(101)
LARGEST_BADGE = 99
OPEN_URL, OPEN_APPLICATION = 2, 3
# Of links and images Huawei takes no others, and refuses a message that has one.
SECURE = "https://"


class ClickAction(Struct, frozen=True, gc=False, omit_defaults=True):
    type: int
    url: str | None = None


class Badge(Struct, frozen=True, gc=False):
    set_num: int


class Notification(Struct, frozen=True, gc=False, omit_defaults=True):
    """Title and body stand here alone: Huawei also takes them beside `android`, and would count them twice."""

    click_action: ClickAction
    title: str | None = None
    body: str | None = None
    image: str | None = None
    sound: str | None = None
    tag: str | None = None
    """Of two with the same one the later takes the place of the earlier."""
    badge: Badge | None = None


class Android(Struct, frozen=True, gc=False, omit_defaults=True):
    urgency: str
    ttl: str
    collapse_key: int | None = None
    notification: Notification | None = None


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    data: str
    """JSON in a text, for the application."""
    android: Android


class Target(Struct, frozen=True, gc=False):
    token: tuple[str | None]


class HuaweiRequest(Struct, frozen=True, gc=False):
    validate_only: bool
    message: Raw


class HuaweiAssembler:
    provider = "huawei"
    max_payload_bytes = MAX_PAYLOAD_BYTES
    request_type = HuaweiRequest

    def __init__(self, delivery: Delivery) -> None:
        self._message = delivery.message
        self._encode = msgspec.json.Encoder().encode
        options = delivery.message.options
        self._urgency = "HIGH" if options.priority == "high" else "NORMAL"
        self._ttl = f"{delivery.ttl_s(LONGEST_TTL_S)}s"
        self._collapse_key = collapse_key_of(options.collapse_id)

    def payload(self, content: Content, platform: str | None) -> bytes:
        shown = None if self._message.options.silent else self._notification(content)
        android = Android(self._urgency, self._ttl, self._collapse_key, shown)
        return self._encode(Message(self._data(content), android))

    def request(self, device: ContactDevice, payload: bytes, out_message_id: str) -> HuaweiRequest:
        return HuaweiRequest(False, merged(self._encode(Target((device.push_token,))), payload))

    def _notification(self, content: Content) -> Notification:
        return Notification(
            # Another link, into the application for one, is in the data: the application opens it.
            ClickAction(OPEN_URL, content.url) if _is_secure(content.url) else ClickAction(OPEN_APPLICATION),
            # Huawei wants both. Who has written one text wants it shown.
            content.title or content.body,
            content.body or content.title,
            content.image_url if _is_secure(content.image_url) else None,
            content.sound or None,
            self._message.options.collapse_id,
            None if content.badge is None else Badge(min(content.badge, LARGEST_BADGE)),
        )

    def _data(self, content: Content) -> str:
        data: dict[str, Any] = dict(content.data or {})
        if content.url is not None:
            data["url"] = content.url
        ids = {"messageId": self._message.message_id, "campaignId": self._message.campaign_id}
        return self._encode(data | ids).decode()


def _is_secure(url: str | None) -> bool:
    return url is not None and len(url) > len(SECURE) and url[: len(SECURE)].lower() == SECURE


def collapse_key_of(collapse_id: str | None) -> int | None:
    """Huawei knows the keys 0 to 100. No other text is squeezed into them: strangers would swallow each other."""
    if collapse_id is None or not (collapse_id.isascii() and collapse_id.isdigit() and len(collapse_id) <= 3):
        return None
    number = int(collapse_id)
    return number if number in COLLAPSE_KEYS else None


ASSEMBLER = HuaweiAssembler
