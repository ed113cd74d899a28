"""Web Push: subscription, headers and plaintext. The sender has the VAPID keys and encrypts.

Headers: RFC 8030; encryption of one record: RFC 8291, which leaves 3993 bytes of plaintext in 4096.
"""

import base64
import hashlib
import re
from typing import Any

import msgspec
from msgspec import Struct

from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.device_events import WebPush
from clientmgr.contracts.sending import Content
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.sending.assemble.interface import Delivery

MAX_PLAINTEXT_BYTES = 3993
MAX_TOPIC_CHARACTERS = 32
_TOPIC = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_TOPIC_CHARACTERS}}}")
_SUBSCRIPTION = msgspec.json.Decoder(WebPush)


class Headers(Struct, frozen=True, gc=False, omit_defaults=True, rename="pascal"):
    ttl: str = msgspec.field(name="TTL")
    urgency: str
    topic: str | None = None


class WebPushRequest(Struct, frozen=True, gc=False):
    subscription: WebPush
    headers: Headers
    plaintext: str


class Plaintext(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What the site's service worker gets."""

    message_id: str
    campaign_id: str
    title: str | None = None
    body: str | None = None
    image_url: str | None = None
    url: str | None = None
    badge: int | None = None
    silent: bool = False
    tag: str | None = None
    data: dict[str, Any] | None = None


class WebPushAssembler:
    provider = "vapid"
    max_payload_bytes = MAX_PLAINTEXT_BYTES
    request_type = WebPushRequest

    def __init__(self, delivery: Delivery) -> None:
        options = delivery.message.options
        self._message = delivery.message
        self._encode = msgspec.json.Encoder().encode
        self._headers = Headers(str(delivery.ttl_s()), options.priority, topic_of(options.collapse_id))

    def payload(self, content: Content, platform: str | None) -> bytes:
        options = self._message.options
        return self._encode(
            Plaintext(
                self._message.message_id,
                self._message.campaign_id,
                content.title,
                content.body,
                content.image_url,
                content.url,
                content.badge,
                options.silent,
                options.collapse_id,
                content.data,
            )
        )

    def request(self, device: ContactDevice, payload: bytes, out_message_id: str) -> WebPushRequest:
        subscription = subscription_of(device)
        if subscription is None:
            raise InvalidMessageError(f"device {device.client_id}: expected a web push subscription, got none")
        return WebPushRequest(subscription, self._headers, payload.decode())


def subscription_of(device: ContactDevice) -> WebPush | None:
    """The device's subscription, if it has one with all that a sender needs."""
    try:
        return None if device.web_push is None else _SUBSCRIPTION.decode(device.web_push)
    except msgspec.ValidationError:
        return None


def topic_of(collapse_id: str | None) -> str | None:
    """A Topic is at most 32 characters of URL-safe base64; what is none stands in it as a digest."""
    if collapse_id is None or _TOPIC.fullmatch(collapse_id):
        return collapse_id
    return base64.urlsafe_b64encode(hashlib.sha256(collapse_id.encode()).digest()).decode()[:MAX_TOPIC_CHARACTERS]


ASSEMBLER = WebPushAssembler
