"""From recipients and their devices to outgoing messages and reasons why there are none. Pure: no I/O, no clock.

A device passes stages in a fixed order, and what stops it is its reason. A contact that gets nothing gets one event,
with the reason of the device that came furthest.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from clientmgr.broker.interface import Message
from clientmgr.contracts.sending import Content, Recipient, SendingMessage
from clientmgr.devices.contact_devices import ContactDevice, DevicesByContact
from clientmgr.sending.assemble.interface import Assembler, Delivery
from clientmgr.sending.assemble.stored import StoredAssembler
from clientmgr.sending.assemble.webpush import subscription_of
from clientmgr.sending.filtering import compile_filter, fields_of
from clientmgr.sending.identity import OutMessageIds
from clientmgr.sending.language import choose_language
from clientmgr.sending.providers import ASSEMBLERS_OF_CHANNEL

WEB = "web"
VALID = "valid"
HOLDS_TOKEN = frozenset({VALID, "invalid"})
"""Statuses of a push token that a device has. Others: it has none, or another device has claimed it."""
UNDETERMINED = "und"
"""The language of what has none, as BCP 47 calls it."""
NOTHING = Content()
ENVELOPE_BYTES = 8192
"""More than what is around a request in a message."""


class Reason(enum.StrEnum):
    """Why a device, or a contact, gets nothing. In the order of the stages: the later, the further it came."""

    NO_DEVICES = "NO_DEVICES"
    CRITERIA = "CRITERIA"
    PUSH_DISABLED = "PUSH_DISABLED"
    MISSING_PUSH_TOKEN = "MISSING_PUSH_TOKEN"  # noqa: S105  # a reason
    INVALID_PUSH_TOKEN = "INVALID_PUSH_TOKEN"  # noqa: S105  # a reason
    NO_CONTENT = "NO_CONTENT"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    EXPIRED = "EXPIRED"


_STAGES = {reason: stage for stage, reason in enumerate(Reason)}


class OutMessage(Struct, frozen=True, rename="camel", gc=False):
    """What a provider's sender gets."""

    out_message_id: str
    message_id: str
    customer_id: int
    contact_id: int
    application_code: str
    client_id: str | None
    """None: for the contact as a whole."""
    provider: str
    language: str
    request: Raw | Struct


class DeviceReason(Struct, frozen=True, rename="camel", gc=False):
    client_id: str
    reason: Reason


class NotSent(Struct, frozen=True, rename="camel", gc=False):
    """An event of `data-platform.not-sent`."""

    message_id: str
    customer_id: int
    contact_id: int
    campaign_id: str
    channel: str
    reason: Reason
    devices: list[DeviceReason]
    occurred_at: int


class Mapped:
    """What came of recipients."""

    def __init__(self) -> None:
        self.sent: defaultdict[str, list[Message]] = defaultdict(list)
        """By provider."""
        self.not_sent: list[Message] = []
        self.reasons: Counter[Reason] = Counter()
        """Of the contacts that get nothing."""


Payload = bytes | None
"""None: larger than its provider takes."""


class MessageMapper:
    """Maps one message. What is the same for all its recipients is done once, here."""

    def __init__(self, message: SendingMessage, *, now_ms: int, max_message_bytes: int) -> None:
        self.message = message
        self._now_ms = now_ms
        delivery = Delivery(message, now_ms)
        self._is_expired = delivery.is_expired
        self.criterion = compile_filter(message.filter)
        self._matches = None if self.criterion is None else self.criterion.matches
        of_channel = ASSEMBLERS_OF_CHANNEL[message.channel]
        self._assemblers: dict[str, Assembler] = {name: make(delivery) for name, make in of_channel.items()}
        self._stored: Assembler | None = None
        """Where the message is for the contact as a whole, not for its devices."""
        if not of_channel:
            self._stored = StoredAssembler(message.channel, delivery, max_message_bytes - ENVELOPE_BYTES)
        self._wants_web = message.channel == "webpush"
        self._silent = message.options.silent
        self._ids = OutMessageIds(message.message_id, message.application_code)
        self._tenant = str(message.customer_id)
        self._encode = msgspec.json.Encoder().encode
        self.fields = frozenset(fields_of(message.filter)) | ({"last_seen_at"} if self._stored else set())
        """What has to be known of a device besides its address."""

    def map(self, recipients: Sequence[Recipient], devices: DevicesByContact, mapped: Mapped) -> None:
        """Add the outgoing messages of these recipients, or why there are none, to `mapped`."""
        for recipient in recipients:
            found = devices.get(recipient.contact_id)
            reasons = self._map_contact(recipient, found, mapped) if found else []
            if reasons is not None:
                self._add_not_sent(recipient, reasons, mapped)

    def is_about(self, device: ContactDevice) -> bool:
        """Whether the message's channel is about devices of this kind."""
        if self._stored or device.provider in self._assemblers:
            return True
        return device.provider == "none" and is_web(device) is self._wants_web

    def judge(
        self, recipient: Recipient, device: ContactDevice, payloads: dict[Any, Payload] | None = None
    ) -> OutMessage | Reason:
        """What a device gets, or why it gets nothing.

        `payloads`: those of the recipient so far, so that devices alike share the work.
        """
        unreachable = self._why_unreachable(device)
        if unreachable is not None:
            return unreachable
        chosen = self.content_for(device, recipient.contents)
        if chosen is None:
            return Reason.NO_CONTENT
        language, content = chosen
        assembler = self._stored or self._assemblers[device.provider]
        payload = self._payload(assembler, content, language, device.platform, payloads)
        if payload is None:
            return Reason.PAYLOAD_TOO_LARGE
        if self._is_expired:
            return Reason.EXPIRED
        client_id = None if self._stored else device.client_id
        out_message_id = self._ids.of(recipient.contact_id, client_id)
        return OutMessage(
            out_message_id,
            self.message.message_id,
            self.message.customer_id,
            recipient.contact_id,
            self.message.application_code,
            client_id,
            assembler.provider,
            language,
            assembler.request(device, payload, out_message_id),
        )

    def content_for(self, device: ContactDevice, contents: Mapping[str, Content]) -> tuple[str, Content] | None:
        """What the device is to get, and in which language; None: there is nothing to read for it."""
        language, default = device.language, self.message.default_language
        if language is None or language not in contents:
            language = choose_language(language, default, tuple(contents))
        # Else it is what the lookup would give, in a tenth of the time.
        if self._silent:
            language = language or next(iter(contents), default or UNDETERMINED)
            return language, contents.get(language, NOTHING)
        if language is None:
            return None
        content = contents[language]
        if content.title or content.body:
            return language, content
        # A text that says nothing is none: there may be one that does.
        readable = tuple(tag for tag, other in contents.items() if other.title or other.body)
        language = choose_language(device.language, default, readable)
        return None if language is None else (language, contents[language])

    def _why_unreachable(self, device: ContactDevice) -> Reason | None:
        if self._matches is not None and not self._matches(device):
            return Reason.CRITERIA
        if self._stored:
            return None
        if device.push_enabled is False:
            return Reason.PUSH_DISABLED
        status = device.push_token_status
        if not (device.provider in self._assemblers and status in HOLDS_TOKEN and has_address(device)):
            return Reason.MISSING_PUSH_TOKEN
        return None if status == VALID else Reason.INVALID_PUSH_TOKEN

    @staticmethod
    def _payload(
        assembler: Assembler,
        content: Content,
        language: str,
        platform: str | None,
        payloads: dict[Any, Payload] | None,
    ) -> Payload:
        if payloads is not None:
            key = (assembler.provider, language, platform)
            if key not in payloads:
                payloads[key] = MessageMapper._payload(assembler, content, language, platform, None)
            return payloads[key]
        encoded = assembler.payload(content, platform)
        return encoded if len(encoded) <= assembler.max_payload_bytes else None

    def _map_contact(
        self, recipient: Recipient, devices: Sequence[ContactDevice], mapped: Mapped
    ) -> list[DeviceReason] | None:
        """None: the contact gets something. Else why each device does not."""
        if self._stored:
            devices = seen_last_first(devices)
        payloads: dict[Any, Payload] | None = {} if len(devices) > 1 else None
        reasons: list[DeviceReason] = []
        gets_something = False
        for device in devices:
            if not self.is_about(device):
                continue
            verdict = self.judge(recipient, device, payloads)
            if isinstance(verdict, OutMessage):
                gets_something = True
                key = verdict.client_id or str(recipient.contact_id)
                message = Message(self._encode(verdict), self._tenant, key)
                mapped.sent[verdict.provider].append(message)
                if self._stored:
                    break
            else:
                reasons.append(DeviceReason(device.client_id, verdict))
        return None if gets_something else reasons

    def _add_not_sent(self, recipient: Recipient, devices: list[DeviceReason], mapped: Mapped) -> None:
        reason = max((one.reason for one in devices), key=_STAGES.__getitem__, default=Reason.NO_DEVICES)
        event = NotSent(
            self.message.message_id,
            self.message.customer_id,
            recipient.contact_id,
            self.message.campaign_id,
            self.message.channel,
            reason,
            devices,
            self._now_ms,
        )
        mapped.reasons[reason] += 1
        mapped.not_sent.append(Message(self._encode(event), self._tenant, str(recipient.contact_id)))


def is_web(device: ContactDevice) -> bool:
    """Whether web push is what reaches it. One without a token is known by its platform."""
    return device.provider == "vapid" or (device.provider == "none" and device.platform == WEB)


def has_address(device: ContactDevice) -> bool:
    """Whether there is what a sender needs to reach it. Our writer sees to that; the legacy store has all sorts."""
    return bool(device.push_token) if device.provider != "vapid" else subscription_of(device) is not None


def seen_last_first(devices: Sequence[ContactDevice]) -> list[ContactDevice]:
    return sorted(devices, key=lambda device: (-(device.last_seen_at or 0), device.client_id))


def distinct(recipients: Sequence[Recipient]) -> Sequence[Recipient]:
    """A contact that is named twice gets the message once, as it is named first."""
    if len({recipient.contact_id for recipient in recipients}) == len(recipients):
        return recipients
    first: dict[int, Recipient] = {}
    for recipient in recipients:
        first.setdefault(recipient.contact_id, recipient)
    return list(first.values())
