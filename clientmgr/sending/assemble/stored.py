"""What is kept by us until an application asks for it: messages of the inbox, and embedded messages (`em`)."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from clientmgr.contracts.sending import Content
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.sending.assemble.interface import Delivery
from clientmgr.sending.assemble.json_objects import merged


class Id(Struct, frozen=True, gc=False):
    id: str


class StoredMessage(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The same for both; they differ in where an application shows them."""

    campaign_id: str
    title: str | None = None
    subtitle: str | None = None
    body: str | None = None
    image_url: str | None = None
    url: str | None = None
    badge: int | None = None
    data: dict[str, Any] | None = None
    expires_at: int | None = None
    collapse_id: str | None = None
    silent: bool = False


class StoredAssembler:
    request_type = StoredMessage

    def __init__(self, provider: str, delivery: Delivery, max_payload_bytes: int) -> None:
        self.provider = provider
        self.max_payload_bytes = max_payload_bytes
        self._message = delivery.message
        self._encode = msgspec.json.Encoder().encode

    def payload(self, content: Content, platform: str | None) -> bytes:
        message = self._message
        return self._encode(
            StoredMessage(
                message.campaign_id,
                content.title,
                content.subtitle,
                content.body,
                content.image_url,
                content.url,
                content.badge,
                content.data,
                message.expires_at,
                message.options.collapse_id,
                message.options.silent,
            )
        )

    def request(self, device: ContactDevice, payload: bytes, out_message_id: str) -> Raw:
        return merged(self._encode(Id(out_message_id)), payload)
