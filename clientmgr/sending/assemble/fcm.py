"""Firebase Cloud Messaging, HTTP v1: the body of `projects.messages.send`.

https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from clientmgr.contracts.sending import Content
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.sending.assemble.apple import Aps, aps_of, priority_of, push_type_of
from clientmgr.sending.assemble.interface import Delivery
from clientmgr.sending.assemble.json_objects import merged

MAX_PAYLOAD_BYTES = 4096


class Notification(Struct, frozen=True, gc=False, omit_defaults=True):
    title: str | None = None
    body: str | None = None
    image: str | None = None


class AndroidNotification(Struct, frozen=True, gc=False, omit_defaults=True):
    sound: str | None = None
    tag: str | None = None
    """Of two with the same one the later takes the place of the earlier."""
    notification_count: int | None = None


class Android(Struct, frozen=True, gc=False, omit_defaults=True):
    priority: str
    ttl: str
    collapse_key: str | None = None
    notification: AndroidNotification | None = None


class ApnsHeaders(Struct, frozen=True, gc=False, omit_defaults=True):
    push_type: str = field(name="apns-push-type")
    priority: str = field(name="apns-priority")
    expiration: str | None = field(name="apns-expiration", default=None)
    collapse_id: str | None = field(name="apns-collapse-id", default=None)


class ApnsPayload(Struct, frozen=True, gc=False):
    aps: Aps


class ApnsFcmOptions(Struct, frozen=True, gc=False):
    image: str


class Apns(Struct, frozen=True, gc=False, omit_defaults=True):
    """For an application on iOS that has its token from Firebase."""

    headers: ApnsHeaders
    payload: ApnsPayload
    fcm_options: ApnsFcmOptions | None = None


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    data: dict[str, str]
    notification: Notification | None = None
    android: Android | None = None
    apns: Apns | None = None


class Target(Struct, frozen=True, gc=False, omit_defaults=True):
    """Exactly one of them."""

    fid: str | None = None
    token: str | None = None


class FcmRequest(Struct, frozen=True, gc=False):
    message: Raw


class FcmAssembler:
    provider = "fcm"
    max_payload_bytes = MAX_PAYLOAD_BYTES
    request_type = FcmRequest

    def __init__(self, delivery: Delivery) -> None:
        self._message = delivery.message
        self._encode = msgspec.json.Encoder().encode
        self._ttl_s = delivery.ttl_s()

    def payload(self, content: Content, platform: str | None) -> bytes:
        if platform == "ios":
            # What is shown is in `aps`: in `notification` as well, it would count twice towards the limit.
            return self._encode(Message(self._data(content), apns=self._apns(content)))
        silent = self._message.options.silent
        shown = None if silent else Notification(content.title, content.body, content.image_url)
        return self._encode(Message(self._data(content), shown, self._android(content)))

    def request(self, device: ContactDevice, payload: bytes, out_message_id: str) -> FcmRequest:
        by_installation = device.push_token_kind == "fcm_fid"  # noqa: S105  # a kind
        target = Target(fid=device.push_token) if by_installation else Target(token=device.push_token)
        return FcmRequest(merged(self._encode(target), payload))

    def _data(self, content: Content) -> dict[str, str]:
        """FCM takes nothing but text. No message comes here with a key that it keeps for itself."""
        data = {key: as_text(value) for key, value in content.data.items()} if content.data else {}
        if content.url is not None:
            data["url"] = content.url
        data["messageId"] = self._message.message_id
        data["campaignId"] = self._message.campaign_id
        return data

    def _android(self, content: Content) -> Android:
        options = self._message.options
        shown = None
        if not options.silent and (content.sound or options.collapse_id or content.badge is not None):
            shown = AndroidNotification(content.sound, options.collapse_id, content.badge)
        priority = "HIGH" if options.priority == "high" else "NORMAL"
        return Android(priority, f"{self._ttl_s}s", options.collapse_id, shown)

    def _apns(self, content: Content) -> Apns:
        options, expires_at = self._message.options, self._message.expires_at
        expiration = None if expires_at is None else str(expires_at // 1000)
        return Apns(
            ApnsHeaders(push_type_of(options), priority_of(options), expiration, options.collapse_id),
            ApnsPayload(aps_of(content, silent=options.silent)),
            ApnsFcmOptions(content.image_url) if content.image_url and not options.silent else None,
        )


def as_text(value: Any) -> str:
    """A value for those who take only text: text as it is, all else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


ASSEMBLER = FcmAssembler
