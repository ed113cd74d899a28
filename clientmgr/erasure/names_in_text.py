"""Names of customers, contacts, devices and tokens in a text, with the values after them. Pure.

The text need not be JSON: `'contactId': 42`, `contact_id=42&…`, `<contactId>42<`, `{contactId:42`, JSON that is cut off
and JSON that is itself a text in JSON are read alike. It decides what is erased: better a value too many.
"""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

# A quotation mark may be escaped, and so may a line's end: then the name stands in JSON that is itself a text in JSON.
# Every repetition has a limit: a text of nothing but backslashes must not take an hour.
_QUOTE: Final = rb"""\\{0,15}["']?"""
_SPACE: Final = rb"(?:\s|\\{1,15}[nrt])"
_BETWEEN: Final = rb"(?:[\s:=>\[\](]|\\{1,15}[nrt]){1,40}"
# Not the end of a longer name; the `n` of an escaped line's end is no letter of the name.
_START: Final = rb"(?:(?<![A-Za-z_])|(?<=\\[nrt]))"


def _name(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern + rb"(?P<plural>s?)" + _QUOTE + _BETWEEN, re.IGNORECASE)


_CONTACT: Final = _name(rb"contact[_-]?id")  # `fromContactId` is a contact as well
_CUSTOMER: Final = _name(_START + rb"customer[_-]?id")
_CLIENT: Final = _name(_START + rb"client[_-]?id")
_APPLICATION: Final = _name(_START + rb"application[_-]?code")
_TOKEN: Final = _name(_START + rb"(?:(?:push[_-]?|device[_-]?)?token|endpoint|fid)")

_NUMBER: Final = re.compile(_QUOTE + _SPACE + rb"{0,40}([0-9]+(?:\.[0-9]*)?)")
_STRING: Final = re.compile(
    rb"""\\{0,15}"(?P<json>(?:[^"\\]|\\[^u"]|\\u[0-9A-Fa-f]{4})+)"""
    rb"""|\\{0,15}'(?P<single>[^'\\]+)"""
    rb"""|(?P<bare>[^\s"'\\&,;<>(){}\[\]]+)"""
)
_COMMA: Final = re.compile(_QUOTE + _SPACE + rb"{0,40}," + _SPACE + rb"{0,40}")


def contacts(text: bytes) -> Iterator[str]:
    """Numbers as they are written: `42`, `42.0`, and whatever else stands there."""
    return _numbers(_CONTACT, text)


def customers(text: bytes) -> Iterator[str]:
    return _numbers(_CUSTOMER, text)


def clients(text: bytes) -> set[str]:
    return _strings(_CLIENT, text)


def applications(text: bytes) -> set[str]:
    return _strings(_APPLICATION, text)


def tokens(text: bytes) -> set[str]:
    return _strings(_TOKEN, text)


def readings(payload: bytes) -> Iterator[bytes]:
    """What a payload that is not JSON may say: as it stands, as a form, and as UTF-16."""
    yield payload
    if b"%" in payload:
        yield unquote_to_bytes(payload.replace(b"+", b" "))
    if b"\0" in payload:
        yield payload.replace(b"\0", b"")


def occurrences(lowered: bytes, whose: bytes) -> int:
    """How often a name is there, in the spellings that are searched for."""
    return sum(lowered.count(whose + ending) for ending in (b"id", b"_id", b"-id"))


def _numbers(name: re.Pattern[bytes], text: bytes) -> Iterator[str]:
    for value in _values(name, _NUMBER, text):
        yield value[1].decode()


def _strings(name: re.Pattern[bytes], text: bytes) -> set[str]:
    found = set()
    for value in _values(name, _STRING, text):
        raw = value[value.lastgroup or 0]
        found.add(_unescaped(raw) if value.lastgroup == "json" else raw.decode(errors="replace"))
    return found


def _values(name: re.Pattern[bytes], value: re.Pattern[bytes], text: bytes) -> Iterator[re.Match[bytes]]:
    """What stands after each occurrence of the name: one value, or the values of a list."""
    for named in name.finditer(text):
        is_list = bool(named["plural"]) or b"[" in named[0]
        position = named.end()
        while (one := value.match(text, position)) is not None:
            yield one
            comma = _COMMA.match(text, one.end()) if is_list else None
            if comma is None:
                break
            position = comma.end()


def _unescaped(escaped: bytes) -> str:
    """What a JSON text stands for; of one that is broken, what can be read."""
    try:
        return str(msgspec.json.decode(b'"' + escaped + b'"', type=str))
    except (msgspec.MsgspecError, ValueError):
        return escaped.decode(errors="replace")
