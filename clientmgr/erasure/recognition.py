"""What a stored message is about: which customers, contacts, devices and push tokens it names. Pure.

It goes by the structure of the data, not by the topic: any message of ours, a copy in an error topic and what somebody
else published to the gateway are looked at alike. What is not JSON is searched for the same names as text.
"""

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.errors import InvalidInputError
from clientmgr.erasure import names_in_text

LARGEST_CONTACT_ID: Final = 2**63 - 1

Device = tuple[str, str]
"""Application code and client id. An empty application code: the message does not say which."""


@dataclass(frozen=True, slots=True)
class Mentions:
    """What one message names, at any depth."""

    customers: frozenset[CustomerId] = frozenset()
    """Those that the data names; the row's label where it names none."""
    contacts: frozenset[int] = frozenset()
    devices: frozenset[Device] = frozenset()
    tokens: frozenset[str] = frozenset()
    """Push tokens and endpoints of web push."""
    applications: frozenset[str] = frozenset()
    occurred_at: int | None = None
    """The time that the message itself gives, in epoch milliseconds; None: only its publishing is known."""
    event_type: str = ""
    is_deletion: bool = False
    """Whether it asks for the deletion of the contact that it names."""
    is_verdict: bool = False
    """Whether it is a provider's verdict on a push token."""

    @property
    def names_nobody(self) -> bool:
        return not (self.contacts or self.devices or self.tokens)


@dataclass(slots=True)
class _Found:
    customers: set[CustomerId] = field(default_factory=set)
    contacts: set[int] = field(default_factory=set)
    devices: set[Device] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    applications: set[str] = field(default_factory=set)
    fields: Counter[str] = field(default_factory=Counter)
    """How many fields are named after a contact, a client and a customer, whatever their values."""


def mentions(
    payload: bytes, host_id: str = "", user_id: str = "", attributes: Mapping[str, str] | None = None
) -> Mentions:
    """What the message names. `host_id` and `user_id` are the log's names for a message's tenant and key."""
    found = _Found()
    value = decoded(payload)
    if value is not None:
        _search_value(value, found)
    # As text too: a decoder shows only the last of two equal names, and none that stand inside a text.
    _search_text(payload, found, everything=value is None)
    if attributes:
        _search_value(dict(attributes), found)
    if not found.customers and (labelled := as_customer(host_id)) is not None:
        found.customers.add(labelled)
    if user_id and not found.contacts and not found.devices:
        _take_key(user_id, found)
    top = value if isinstance(value, dict) else {}
    event_type = top.get("eventType")
    return Mentions(
        frozenset(found.customers),
        frozenset(found.contacts),
        frozenset(found.devices),
        frozenset(found.tokens),
        frozenset(found.applications),
        _time(top),
        event_type if isinstance(event_type, str) else "",
        is_deletion="deletedAt" in top and "contactId" in top,
        is_verdict="status" in top and "clientId" in top and ("pushToken" in top or "endpoint" in top),
    )


def decoded(payload: bytes) -> Any:
    """The JSON value of the payload; None where it is none, or nothing but `null`."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def customers_in(payload: bytes, host_id: str) -> frozenset[CustomerId]:
    """`mentions(…).customers`, in a tenth of the time for nearly every message."""
    if b"\\u" not in payload and (named := _customers_in_text(payload)):
        return frozenset(named)
    return mentions(payload, host_id).customers


def contacts_in(data: bytes) -> frozenset[int]:
    """The contacts that a piece of JSON names."""
    return mentions(data).contacts


def as_customer(value: object) -> CustomerId | None:
    try:
        return parse_customer_id(value)
    except InvalidInputError:
        return None


# Names are compared without case, hyphens and underscores: `contact_id` is somebody's `contactId`.
_CUSTOMERS: Final = ("customerid", "customerids")
_CONTACTS: Final = ("contactid", "contactids")
_CLIENTS: Final = ("clientid", "clientids")
_APPLICATION: Final = "applicationcode"
_TOKENS: Final = frozenset({"pushtoken", "pushtokens", "endpoint", "devicetoken", "token", "tokens", "fid"})
_SPELLED: Final = ("contact", "client", "customer")


@functools.lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


@functools.lru_cache(maxsize=4096)
def _spelled(name: str) -> str:
    """Whose name it is, in a spelling that can be counted in the text; else empty."""
    lowered = name.lower().encode(errors="replace")
    return next((whose for whose in _SPELLED if names_in_text.occurrences(lowered, whose.encode())), "")


def _search_value(value: Any, found: _Found) -> None:
    """Without recursion: what is nested deeply is looked at as well."""
    waiting: list[tuple[Any, str]] = [(value, "")]
    while waiting:
        current, application = waiting.pop()
        if isinstance(current, list):
            waiting.extend((item, application) for item in current if isinstance(item, dict | list))
            continue
        application = _application_of(current, application, found)
        for name, item in current.items() if isinstance(current, dict) else ():
            if spelled := _spelled(name):
                found.fields[spelled] += 1
            if isinstance(item, dict):
                waiting.append((item, application))
            else:
                _take(_plain(name), item, application, found)
                if isinstance(item, list):
                    waiting.append((item, application))


def _application_of(current: Any, outer: str, found: _Found) -> str:
    if isinstance(current, dict):
        for name, item in current.items():
            if isinstance(item, str) and item and _plain(name) == _APPLICATION:
                found.applications.add(item)
                return item
    return outer


def _take(name: str, value: Any, application: str, found: _Found) -> None:
    """Note a field that is a name of somebody. Lists of them count one by one."""
    values = value if isinstance(value, list) else (value,)
    if name.endswith(_CONTACTS):
        found.contacts.update(contact for item in values if (contact := _as_contact(item)) is not None)
    elif name in _CLIENTS:
        found.devices.update((application, str(item)) for item in values if isinstance(item, str | int) and item != "")
    elif name in _CUSTOMERS:
        found.customers.update(customer for item in values if (customer := as_customer(item)) is not None)
    elif name in _TOKENS:
        found.tokens.update(item for item in values if isinstance(item, str) and item)


def _as_contact(value: Any) -> int | None:
    if isinstance(value, str):
        whole, _, fraction = value.strip().partition(".")
        value = (
            int(whole) if whole.isascii() and whole.isdigit() and len(whole) < 20 and not fraction.strip("0") else None
        )
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LARGEST_CONTACT_ID:
        return None
    return value


def _search_text(payload: bytes, found: _Found, *, everything: bool) -> None:
    """`everything`: the payload is no JSON, so that this is the only look at it."""
    for text in names_in_text.readings(payload) if everything else (payload,):
        # Searching takes ten times as long as counting, and in nearly every message the fields are all there is.
        lowered = text.lower()
        hidden = {whose for whose in _SPELLED if _is_elsewhere(lowered, whose, found)}
        if "contact" in hidden:
            named = (_as_contact(number) for number in names_in_text.contacts(text))
            found.contacts.update(contact for contact in named if contact is not None)
        if "client" in hidden:
            applications = names_in_text.applications(text) | found.applications
            known = {client for _, client in found.devices}
            for client in names_in_text.clients(text) - known:
                found.devices.update((application, client) for application in applications or ("",))
            found.applications |= applications
        if "customer" in hidden:
            found.customers.update(_customers_in_text(text))
        if everything:
            found.tokens |= names_in_text.tokens(text)


def _is_elsewhere(lowered: bytes, whose: str, found: _Found) -> bool:
    """Whether the name is there more often than as the name of a field that was looked at."""
    seen = found.fields[whose]
    # The name of a field may be written with `\u`: then it was looked at, and can't be counted.
    return names_in_text.occurrences(lowered, whose.encode()) > (0 if b"\\u" in lowered else seen)


def _customers_in_text(text: bytes) -> set[CustomerId]:
    named = (as_customer(number) for number in names_in_text.customers(text))
    return {customer for customer in named if customer is not None}


def _take_key(user_id: str, found: _Found) -> None:
    """The row's key is the contact or the device. It counts only where the data names neither: `42` may be both."""
    if (contact := _as_contact(user_id)) is not None:
        found.contacts.add(contact)
    found.devices.update((application, user_id) for application in found.applications or ("",))


def _time(top: Mapping[str, Any]) -> int | None:
    for name in ("occurredAt", "deletedAt"):
        value = top.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
