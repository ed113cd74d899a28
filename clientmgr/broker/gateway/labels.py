"""Google's rules for labels of resources."""

import unicodedata
from collections.abc import Mapping
from typing import Final

from clientmgr.broker.gateway.refusals import invalid

MAX_LABELS: Final = 64
MAX_CHARACTERS, MAX_BYTES = 63, 128
RULE: Final = (
    f"at most {MAX_CHARACTERS} characters and {MAX_BYTES} bytes, of them lower-case letters, digits, _ and - "
    "(international letters too)"
)


def check_labels(labels: Mapping[str, str]) -> None:
    """INVALID_ARGUMENT, by the label's key, where Google would refuse them."""
    if len(labels) > MAX_LABELS:
        raise invalid(f"Invalid labels: {len(labels)} given, at most {MAX_LABELS} allowed.")
    for key, value in labels.items():
        if not key or not _is_letter(key[0]) or not _is_allowed(key):
            raise invalid(f"Invalid labels key {key[:80]!r}: expected a letter first, and {RULE}.")
        if not _is_allowed(value):
            raise invalid(f"Invalid labels value {value[:80]!r} of {key}: expected {RULE}.")


def _is_allowed(text: str) -> bool:
    return (
        len(text) <= MAX_CHARACTERS
        and len(text.encode()) <= MAX_BYTES
        and all(_is_letter(one) or one in "_-" or unicodedata.category(one)[0] == "N" for one in text)
    )


def _is_letter(character: str) -> bool:
    return unicodedata.category(character) in ("Ll", "Lo")
