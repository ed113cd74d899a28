"""Which stored message must be erased, which loses a part, and which stays. Pure; docs/erasure.md says it in words."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts.decoding import FUTURE_TOLERANCE_MS
from clientmgr.erasure import hashed_contacts
from clientmgr.erasure.recognition import Mentions, contacts_in, mentions


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as a table of ours keeps it."""

    payload: bytes
    host_id: str
    user_id: str
    attributes: Mapping[str, str]
    published_ms: int

    def mentions(self) -> Mentions:
        return mentions(self.payload, self.host_id, self.user_id, self.attributes)


@dataclass(frozen=True, slots=True)
class GoneAccount:
    """A customer whose account was deleted."""

    deleted_ms: int
    before_ms: int | None = None
    """It is back, or asked to be: what was published from then on is of its new life. None: it is not."""


@dataclass(frozen=True, slots=True)
class GoneContact:
    """A contact that was deleted."""

    version: int
    """The newest of its deletions."""
    hash: bytes
    """What may stay of it."""


@dataclass(frozen=True, slots=True)
class GoneDevice:
    """A device that was deleted. It may have registered anew since."""

    version: int
    """Up to when what it was told is deleted."""
    recorded_ms: int
    """When we carried that out."""
    exists: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What is deleted, of all that some messages name."""

    accounts: Mapping[CustomerId, GoneAccount] = field(default_factory=dict)
    contacts: Mapping[tuple[CustomerId, int], GoneContact] = field(default_factory=dict)
    devices: Mapping[tuple[CustomerId, str, str], GoneDevice] = field(default_factory=dict)
    """By application code and client id, as the message has them."""
    held: frozenset[tuple[CustomerId, str, str, str]] = frozenset()
    """Application code, client id and token, where a device that came back has this token now."""
    tokens: Mapping[tuple[CustomerId, str], GoneDevice] = field(default_factory=dict)
    """Push tokens that a deleted device was the last to claim."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The message is about nobody who is deleted."""


@dataclass(frozen=True, slots=True)
class Erase:
    """Nothing of it may stay."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The message stays, without those who are deleted."""

    payload: bytes
    attributes: Mapping[str, str]
    user_id: str


KEEP: Final = Keep()
ERASE: Final = Erase()
Decision = Keep | Erase | Rewrite

Deleted = Mapping[tuple[CustomerId, int], bytes]
"""Contacts that must go, and what may stay of each."""


def verdict_on(stored: Stored, found: Mentions, known: Known) -> Decision:
    """`found`: what the message names. `known` holds at least all of that which is deleted."""
    if any(_account_is_gone(stored, found, known.accounts.get(customer)) for customer in found.customers):
        return ERASE
    time_ms = _credible_time(stored, found)
    if _names_a_gone_device(stored, found, known, time_ms):
        return ERASE
    deleted = _deleted_contacts(found, known, time_ms)
    if not deleted:
        return KEEP
    is_about_contacts = found.event_type in hashed_contacts.EVENT_TYPES
    rewritten = _hashed(stored, deleted) if is_about_contacts else _without_recipients(stored, deleted)
    if rewritten is None:
        return ERASE
    # It may name them elsewhere too.
    again = Stored(
        rewritten.payload, stored.host_id, rewritten.user_id, rewritten.attributes, stored.published_ms
    ).mentions()
    return ERASE if _deleted_contacts(again, known, time_ms) else rewritten


def _deleted_contacts(found: Mentions, known: Known, time_ms: int | None) -> Deleted:
    return {
        (customer, contact): gone.hash
        for customer in found.customers
        for contact in found.contacts
        if (gone := known.contacts.get((customer, contact))) is not None
        # A deletion that is newer than all that were carried out is still to be carried out.
        and not (found.is_deletion and time_ms is not None and time_ms > gone.version)
    }


def _account_is_gone(stored: Stored, found: Mentions, account: GoneAccount | None) -> bool:
    if account is None:
        return False
    if account.before_ms is not None:
        return stored.published_ms < account.before_ms
    # A request to activate it again, which nobody has read yet, names no person.
    return not (found.names_nobody and stored.published_ms >= account.deleted_ms)


def _credible_time(stored: Stored, found: Mentions) -> int | None:
    """The message's own time. One that lies in the future is refused everywhere, so that it says nothing."""
    if found.occurred_at is None or found.occurred_at > stored.published_ms + FUTURE_TOLERANCE_MS:
        return None
    return found.occurred_at


def _names_a_gone_device(stored: Stored, found: Mentions, known: Known, time_ms: int | None) -> bool:
    for customer in found.customers:
        for application, client in found.devices:
            device = known.devices.get((customer, application, client))
            if device is None:
                continue
            if _is_of_the_deleted(stored, device, time_ms):
                return True
            # A verdict is on a token. It may come long after the device that had it was deleted.
            if found.is_verdict and not any((customer, application, client, t) in known.held for t in found.tokens):
                return True
        if not found.devices:
            for token in found.tokens:
                device = known.tokens.get((customer, token))
                if device is not None and _is_of_the_deleted(stored, device, time_ms):
                    return True
    return False


def _is_of_the_deleted(stored: Stored, device: GoneDevice, time_ms: int | None) -> bool:
    """Whether the message is about the device as it was before its deletion."""
    if time_ms is not None:
        return time_ms <= device.version
    if stored.published_ms <= device.version:
        return True
    # Without a time of its own, like a request to a provider: we may have sent it before we knew of the deletion.
    return not device.exists and stored.published_ms <= device.recorded_ms


def _hashed(stored: Stored, deleted: Deleted) -> Rewrite | None:
    """A link or merge with hashes in the place of these contacts; None: nobody could read it."""
    hashed = hashed_contacts.with_hashes(stored.payload, deleted)
    if hashed is None:
        return None
    payload, client_id = hashed
    return Rewrite(
        payload,
        {name: value for name, value in stored.attributes.items() if name in hashed_contacts.OWN_ATTRIBUTES},
        stored.user_id if stored.user_id == client_id else "",
    )


def _without_recipients(stored: Stored, deleted: Deleted) -> Rewrite | None:
    """A sending without these contacts; None: it is none, or nothing would be left of it."""
    contacts = {contact for _, contact in deleted}
    try:
        top = msgspec.json.decode(stored.payload, type=dict[str, msgspec.Raw])
        if "recipients" not in top:
            return None
        recipients = msgspec.json.decode(top["recipients"], type=list[msgspec.Raw])
        left = [bytes(one) for one in recipients if contacts.isdisjoint(contacts_in(bytes(one)))]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if not left or len(left) == len(recipients):
        return None
    # The others' bytes stay as they are.
    top["recipients"] = msgspec.Raw(b"[%b]" % b",".join(left))
    numbers = {str(contact) for contact in contacts}
    return Rewrite(
        msgspec.json.encode(top),
        {name: value for name, value in stored.attributes.items() if _may_stay(name, value, numbers)},
        "" if stored.user_id in numbers else stored.user_id,
    )


_NUMBERS: Final = re.compile(r"[0-9]+")


def _may_stay(name: str, value: str, numbers: Iterable[str]) -> bool:
    """An attribute may quote whom the message is about; the text of an error may quote anything of it."""
    if name in hashed_contacts.OWN_ATTRIBUTES:
        return True
    return name != "error" and not set(numbers).intersection(_NUMBERS.findall(value))


def own_customer(found: Mentions) -> CustomerId | None:
    """The customer whose message it is, where it names one alone."""
    return next(iter(found.customers)) if len(found.customers) == 1 else None
