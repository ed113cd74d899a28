"""Hides what would let somebody else push to a device, wherever it stands: in a field, a message, a request. Pure."""

import re
from decimal import Decimal
from typing import Any, Final

import msgspec

from clientmgr.contracts.device_fields import FIELDS, Kind
from clientmgr.contracts.providers import PROVIDERS

SECRETS: Final = frozenset(
    [
        *(field.json_name for field in FIELDS if field.masked and field.kind is Kind.TEXT),
        *(member for provider in PROVIDERS for member in provider.address_members),
    ]
)
"""Members of messages and requests that are a device's secrets."""

_SECRET_MEMBER = re.compile(rf'("(?:{"|".join(sorted(SECRETS))})"\s*:\s*")([^"]*)')

# Numbers stay as they were written: 1.10 is not to become 1.1 only because something beside it is masked.
_DECODER = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def mask(secret: str | None) -> str | None:
    """Enough of a secret to tell it from another; of a short one nothing."""
    if secret is None or len(secret) < 20:
        return None if secret is None else "…"
    return f"{secret[:6]}…{secret[-4:]}"


def masked(document: Any, *, secret: bool = False) -> Any:
    """The document with the secrets in it masked, however deep they stand."""
    if isinstance(document, dict):
        return {key: masked(value, secret=secret or key in SECRETS) for key, value in document.items()}
    if isinstance(document, list):
        return [masked(value, secret=secret) for value in document]
    return mask(document) if secret and isinstance(document, str) else document


def masked_data(data: bytes) -> bytes:
    """A message's contents without secrets, on one line where they are JSON.

    What is not JSON (that may be why somebody looks at it) is searched for what looks like a secret's member.
    """
    try:
        return _ENCODER.encode(masked(_DECODER.decode(data)))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        text = data.decode(errors="surrogateescape")
        hidden = _SECRET_MEMBER.sub(lambda found: f"{found[1]}{mask(found[2])}", text)
        return hidden.encode(errors="surrogateescape")


def masked_text(data: bytes) -> str:
    """A message's contents for people: indented where they are JSON, and without secrets."""
    return plain_text(masked_data(data))


def plain_text(data: bytes) -> str:
    """A message's contents as they are, indented where they are JSON."""
    try:
        return msgspec.json.format(data.decode(), indent=2)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return data.decode(errors="backslashreplace")
