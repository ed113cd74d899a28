"""The fields of a device that a filter may name: how each is read, and what makes its values comparable. Pure."""

import operator
from collections.abc import Callable
from typing import Any, Final

import msgspec

from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.device_fields import FIELDS, Compares
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.sending.versions import parse_version


def _compared(how: Compares) -> dict[str, str]:
    """The fields that compare so: as a filter names them → as a device has them."""
    return {field.json_name: field.name for field in FIELDS if field.compares is how}


TEXT_FIELDS: Final = _compared(Compares.TEXT)
VERSION_FIELDS: Final = _compared(Compares.VERSION)
NUMBER_FIELDS: Final = _compared(Compares.NUMBER)
BOOLEAN_FIELDS: Final = _compared(Compares.BOOLEAN)
JSON_FIELDS: Final = _compared(Compares.MEMBERS)
"""Objects: a field of them is named with a dot, `attributes.tier`."""

_ATTRIBUTES: Final = {**TEXT_FIELDS, **VERSION_FIELDS, **NUMBER_FIELDS, **BOOLEAN_FIELDS}

APPLICATION_CODE: Final = "applicationCode"
"""Also a field of a device, but the same for all that a message can reach: it names its application itself."""

Read = Callable[[ContactDevice], Any]
Prepare = Callable[..., Any]
"""Makes a value, of a device or (with its place) of the filter, comparable; None: with nothing."""


def field_named(name: str, path: str) -> tuple[Read, Prepare, bool]:
    """How a field is read and prepared, and whether it knows greater and smaller."""
    if name in TEXT_FIELDS:
        return operator.attrgetter(TEXT_FIELDS[name]), as_text, True
    if name in VERSION_FIELDS:
        return operator.attrgetter(VERSION_FIELDS[name]), as_version, True
    if name in NUMBER_FIELDS:
        return operator.attrgetter(NUMBER_FIELDS[name]), as_number, True
    if name in BOOLEAN_FIELDS:
        return operator.attrgetter(BOOLEAN_FIELDS[name]), as_boolean, False
    whole, dot, key = name.partition(".")
    if dot and key and whole in JSON_FIELDS:
        return _json_reader(operator.attrgetter(JSON_FIELDS[whole]), key), as_scalar, True
    if name == APPLICATION_CODE:
        raise refused(path, "any field of a device but this one, which the message itself has", name)
    raise refused(path, "a field of a device", name)


def attribute_named(name: str) -> str:
    """The field of a `ContactDevice` that a filter's field is in. For names that `field_named` has taken."""
    return _ATTRIBUTES.get(name) or JSON_FIELDS[name.partition(".")[0]]


def as_text(value: Any, path: str | None = None) -> Any:
    if path is not None and not isinstance(value, str):
        raise refused(path, "text", value)
    return value


def as_version(value: Any, path: str | None = None) -> Any:
    if path is not None:
        # 4.10 without quotes has become 4.1 before anybody could see it.
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise refused(path, 'a version as text, like "4.10"', value)
        value = str(value)
    return None if value is None else parse_version(value)


def as_number(value: Any, path: str | None = None) -> Any:
    if path is not None and (not isinstance(value, (int, float)) or isinstance(value, bool)):
        raise refused(path, "a number", value)
    return value


def as_boolean(value: Any, path: str | None = None) -> Any:
    if path is not None and not isinstance(value, bool):
        raise refused(path, "true or false", value)
    return value


def as_scalar(value: Any, path: str | None = None) -> Any:
    """A value of any kind: it compares only with its own, so that 1, "1" and true are three things."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, (int, float)):
        return ("number", value)
    if isinstance(value, str):
        return ("text", value)
    if path is not None:
        raise refused(path, "text, a number, true or false", value)
    return None


def _json_reader(read_json: Read, key: str) -> Read:
    def read(device: ContactDevice) -> Any:
        text = read_json(device)
        value = None if text is None else msgspec.json.decode(text)
        return value.get(key) if isinstance(value, dict) else None

    return read


def refused(path: str, expected: str, got: Any) -> InvalidMessageError:
    shown = repr(got)
    return InvalidMessageError(f"{path}: expected {expected}, got {shown if len(shown) <= 80 else shown[:77] + '…'}")
