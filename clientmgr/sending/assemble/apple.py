"""Apple Push Notification service: the headers and the JSON payload of a request.

https://developer.apple.com/documentation/usernotifications/sending-notification-requests-to-apns
https://developer.apple.com/documentation/usernotifications/generating-a-remote-notification
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.sending import Content, Options
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.sending.assemble.interface import Delivery

MAX_PAYLOAD_BYTES = 4096


class Headers(Struct, frozen=True, gc=False, omit_defaults=True):
    id: str = field(name="apns-id")
    """Ours: the answer, and a message that comes twice, carry the same."""
    push_type: str = field(name="apns-push-type")
    priority: str = field(name="apns-priority")
    expiration: str | None = field(name="apns-expiration", default=None)
    topic: str | None = field(name="apns-topic", default=None)
    collapse_id: str | None = field(name="apns-collapse-id", default=None)


class ApnsRequest(Struct, frozen=True, gc=False, rename="camel"):
    device_token: str | None
    headers: Headers
    payload: Raw


class Alert(Struct, frozen=True, gc=False, omit_defaults=True):
    title: str | None = None
    subtitle: str | None = None
    body: str | None = None


class Aps(Struct, frozen=True, gc=False, omit_defaults=True, rename="kebab"):
    alert: Alert | None = None
    badge: int | None = None
    sound: str | None = None
    content_available: int | None = None
    mutable_content: int | None = None


class Payload(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    aps: Aps
    message_id: str
    campaign_id: str
    url: str | None = None
    image_url: str | None = None
    data: dict[str, Any] | None = None


def aps_of(content: Content, *, silent: bool) -> Aps:
    if silent:
        return Aps(content_available=1)  # and nothing that anybody would see, a badge included: Apple's rule
    return Aps(
        Alert(content.title, content.subtitle, content.body),
        content.badge,
        content.sound,
        # An application's extension has to fetch the image before the notification is shown.
        mutable_content=1 if content.image_url else None,
    )


def push_type_of(options: Options) -> str:
    """Apple wants to be told, or what nobody sees may be delayed or not delivered at all."""
    return "background" if options.silent else "alert"


def priority_of(options: Options) -> str:
    """Apple refuses priority 10 for what nobody sees."""
    return "10" if options.priority == "high" and not options.silent else "5"


class AppleAssembler:
    provider = "apple"
    max_payload_bytes = MAX_PAYLOAD_BYTES
    request_type = ApnsRequest

    def __init__(self, delivery: Delivery) -> None:
        message = delivery.message
        self._message = message
        self._silent = message.options.silent
        self._encode = msgspec.json.Encoder().encode
        self._push_type = push_type_of(message.options)
        self._priority = priority_of(message.options)
        self._expiration = None if message.expires_at is None else str(message.expires_at // 1000)

    def payload(self, content: Content, platform: str | None) -> bytes:
        message = self._message
        return self._encode(
            Payload(
                aps_of(content, silent=self._silent),
                message.message_id,
                message.campaign_id,
                content.url,
                content.image_url,
                content.data,
            )
        )

    def request(self, device: ContactDevice, payload: bytes, out_message_id: str) -> ApnsRequest:
        """Without a topic Apple refuses every request, so the message is refused as a whole before anything is sent."""
        options = self._message.options
        if not options.apple_topic:
            raise InvalidMessageError(
                "options.appleTopic: expected, for a recipient has a device of Apple's, but missing; nor is there one"
                f" in the configuration of application {self._message.application_code} (`clientmgr applications set`)"
            )
        headers = Headers(
            out_message_id, self._push_type, self._priority, self._expiration, options.apple_topic, options.collapse_id
        )
        return ApnsRequest(device.push_token, headers, Raw(payload))


ASSEMBLER = AppleAssembler
