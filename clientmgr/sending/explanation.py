"""What the device mapper would do for one contact, and why: by the daemon's own code, without sending anything."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.settings import Settings
from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.sending import Recipient, SendingMessage
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.devices.legacy.manager import DeviceManager
from clientmgr.sending.configuration import completed
from clientmgr.sending.fetch import DeviceFetcher, Strategy, choose_strategy
from clientmgr.sending.mapping import MessageMapper, OutMessage, Reason, is_web, seen_last_first
from clientmgr.tenants.applications import ApplicationCache
from clientmgr.tenants.directory import TenantDirectory
from clientmgr.tenants.flippers import Flipper, FlipperCache, Flippers
from clientmgr.tenants.registry import ensure_usable


@dataclass(frozen=True, slots=True)
class DeviceExplanation:
    """One device: where it was found, and what it gets or why it gets nothing."""

    device: ContactDevice
    store: str
    verdict: OutMessage | Reason | InvalidMessageError | None
    """None: the message is not about devices of this kind, or another device stands for the contact. An error: because
    of this device the message is refused as a whole."""
    because: list[str]
    language: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    strategy: Strategy
    flippers: dict[str, bool]
    devices: list[DeviceExplanation]
    reason: Reason | None
    """Why the contact gets nothing; None: it gets something, or the message is refused."""

    @property
    def refusal(self) -> str | None:
        """Why the message goes to the error topic as a whole, so that nobody gets anything of it."""
        return next((str(one.verdict) for one in self.devices if isinstance(one.verdict, InvalidMessageError)), None)


async def explain(
    settings: Settings,
    connection: AsyncConnection[Any],
    customer_id: CustomerId,
    message: SendingMessage,
    contact_id: int,
) -> Explanation:
    """Raises where the customer is none of ours, or the contact none of the message's."""
    recipient = next((one for one in message.recipients if one.contact_id == contact_id), None)
    if recipient is None:
        raise InvalidInputError("--contact", f"one of the message's {len(message.recipients)} recipients", contact_id)
    tenants = TenantDirectory(settings)
    try:
        ensure_usable(customer_id, (await tenants.ask_registry(connection, [customer_id]))[customer_id])
    finally:
        await tenants.close()
    flippers = await FlipperCache(0).current(connection)
    strategy = choose_strategy(flippers, customer_id, settings)
    manager = DeviceManager(settings)
    try:
        fetched = await DeviceFetcher(manager, KeyedHashes.from_settings(settings)).fetch(
            connection, customer_id, message.application_code, [contact_id], strategy
        )
    finally:
        manager.close()
    if fetched.failure is not None and contact_id in fetched.unanswered:
        raise fetched.failure
    key = (customer_id, message.application_code)
    application = (await ApplicationCache(0).current(connection, [key])).get(key)
    mapper = MessageMapper(
        completed(message, application),
        now_ms=time.time_ns() // 1_000_000,
        max_message_bytes=settings.broker_max_message_bytes,
    )
    store = "dynamodb" if fetched.from_dynamodb else "postgres"
    devices = explain_devices(mapper, recipient, fetched.devices.get(contact_id, []), store)
    return Explanation(strategy, _states(flippers, customer_id), devices, _reason_of(devices))


def explain_devices(
    mapper: MessageMapper, recipient: Recipient, devices: Sequence[ContactDevice], store: str
) -> list[DeviceExplanation]:
    is_stored = mapper.message.channel in ("inbox", "em")
    explained: list[DeviceExplanation] = []
    somebody_has_it = False
    for device in seen_last_first(devices) if is_stored else devices:
        verdict = _judge(mapper, recipient, device) if mapper.is_about(device) else None
        because: list[str] = []
        if verdict is None:
            because = [f"a message for {mapper.message.channel} is not for {'browsers' if is_web(device) else 'apps'}"]
        elif verdict is Reason.CRITERIA and mapper.criterion is not None:
            because = mapper.criterion.reasons(device)
        elif isinstance(verdict, InvalidMessageError):
            because = [str(verdict)]
        elif isinstance(verdict, Reason):
            because = [_in_words(verdict, device, mapper.message)]
        elif is_stored and somebody_has_it:
            verdict, because = None, ["the contact has it already, in the language of the device seen last"]
        somebody_has_it = somebody_has_it or isinstance(verdict, OutMessage)
        chosen = mapper.content_for(device, recipient.contents)
        explained.append(DeviceExplanation(device, store, verdict, because, None if chosen is None else chosen[0]))
    return explained


def _judge(
    mapper: MessageMapper, recipient: Recipient, device: ContactDevice
) -> OutMessage | Reason | InvalidMessageError:
    try:
        return mapper.judge(recipient, device)
    except InvalidMessageError as error:
        return error


def _in_words(reason: Reason, device: ContactDevice, message: SendingMessage) -> str:
    match reason:
        case Reason.PUSH_DISABLED:
            return "its user has turned push off"
        case Reason.MISSING_PUSH_TOKEN:
            return f"it has no push token (status {device.push_token_status})"
        case Reason.INVALID_PUSH_TOKEN:
            return "its provider said that the push token is invalid"
        case Reason.NO_CONTENT:
            return f"nothing to read for language {device.language or '–'} or {message.default_language or '–'}"
        case Reason.PAYLOAD_TOO_LARGE:
            return "the content is larger than the provider takes"
        case _:
            return "the message has expired"


def _states(flippers: Flippers, customer_id: CustomerId) -> dict[str, bool]:
    return {str(flipper): flippers.is_on(flipper, customer_id) for flipper in Flipper}


def _reason_of(devices: Sequence[DeviceExplanation]) -> Reason | None:
    if any(isinstance(one.verdict, OutMessage | InvalidMessageError) for one in devices):
        return None
    reasons = [one.verdict for one in devices if isinstance(one.verdict, Reason)]
    return max(reasons, key=list(Reason).index, default=Reason.NO_DEVICES)
