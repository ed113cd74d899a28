"""Messages that are JSON and yet no event: each way of being wrong that a writer must refuse, for a generated load."""

import random
from collections.abc import Callable
from typing import Any, Final

Fields = dict[str, Any]

FAR_FUTURE: Final = 4_102_444_800_000
"""The year 2100: ahead of every clock that this is read by."""


def malformed(event: Fields, chance: random.Random) -> Any:
    """A sound event of type `client.updated`, spoilt in one of the ways below."""
    return chance.choice(_WAYS)(event, chance)


def _without_a_field(event: Fields, chance: random.Random) -> Fields:
    missing = chance.choice(["eventId", "eventType", "customerId", "applicationCode", "clientId", "occurredAt"])
    return {name: value for name, value in event.items() if name != missing}


def _of_a_type_that_is_none(event: Fields, _: random.Random) -> Fields:
    return event | {"eventType": "client.teleported"}


def _with_a_date_for_a_time(event: Fields, _: random.Random) -> Fields:
    return event | {"occurredAt": "2026-01-01T00:00:00Z"}


def _from_the_future(event: Fields, _: random.Random) -> Fields:
    return event | {"occurredAt": FAR_FUTURE}


def _of_no_customer(event: Fields, chance: random.Random) -> Fields:
    return event | {"customerId": chance.choice([0, -5, 10**18, "1001", None])}


def _with_text_for_a_payload(event: Fields, _: random.Random) -> Fields:
    return event | {"payload": "pushEnabled=true"}


def _with_a_wrong_value(event: Fields, _: random.Random) -> Fields:
    return event | {"payload": {"pushEnabled": "yes"}}


def _linked_to_no_contact(event: Fields, chance: random.Random) -> Fields:
    return event | {"eventType": "client.contactLinked", "payload": {"contactId": chance.choice([0, -1, "42", None])}}


def _without_its_token(event: Fields, chance: random.Random) -> Fields:
    payload = {"kind": chance.choice(["apns", "webpush", "pigeon"])}
    return event | {"eventType": "client.pushTokenSet", "payload": payload}


def _with_a_nul(event: Fields, _: random.Random) -> Fields:
    return event | {"payload": {"deviceModel": "Pixel\0 9"}}


def _as_no_object(event: Fields, chance: random.Random) -> Any:
    return chance.choice([[event], "client.updated", 42, None])


_WAYS: Final[list[Callable[[Fields, random.Random], Any]]] = [
    _without_a_field,
    _of_a_type_that_is_none,
    _with_a_date_for_a_time,
    _from_the_future,
    _of_no_customer,
    _with_text_for_a_payload,
    _with_a_wrong_value,
    _linked_to_no_contact,
    _without_its_token,
    _with_a_nul,
    _as_no_object,
]
