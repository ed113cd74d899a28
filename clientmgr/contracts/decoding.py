"""What all messages share: decoding, and refusal by the name of the field that is wrong. No I/O."""

import re
import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.errors import InvalidInputError, PermanentError

# A clock that is this far ahead would freeze what it writes: nothing later could win against it.
FUTURE_TOLERANCE_MS = 5 * 60 * 1000
# Two identifiers make a key, and an index entry holds 2,704 bytes. Characters are not bytes.
MAX_IDENTIFIER_BYTES = 512

Identifier = Annotated[str, Meta(min_length=1, max_length=512)]
Millis = Annotated[int, Meta(gt=0, lt=2**53)]
ContactId = Annotated[int, Meta(gt=0, le=2**63 - 1)]


_MISSING = re.compile(r"Object missing required field `(\w+)`(?: - at `\$\.?(.*)`)?")
_WRONG = re.compile(r"(.*) - at `\$\.?(.*)`")


class InvalidMessageError(PermanentError):
    """The message is not what its topic carries. Says which field, what was expected, what was found."""


def decode(decoder: msgspec.json.Decoder[Any], data: bytes | msgspec.Raw, *, prefix: str = "") -> Any:
    """Decode; whatever is wrong with the data is an `InvalidMessageError` by field."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise InvalidMessageError(_by_field(str(error), prefix)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessageError(f"{prefix or 'message'}: not JSON in UTF-8 ({error})") from None


def checked_customer_id(value: int) -> CustomerId:
    try:
        return parse_customer_id(value)
    except InvalidInputError as error:
        raise InvalidMessageError(str(error)) from None


def check_occurred_at(occurred_at: int, *, field: str = "occurredAt", now_ms: int | None = None) -> None:
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if occurred_at > now_ms + FUTURE_TOLERANCE_MS:
        ahead_s = (occurred_at - now_ms) // 1000
        raise InvalidMessageError(f"{field}: expected a time of the past, got one {ahead_s} s ahead")


def check_identifiers(application_code: str, client_id: str) -> None:
    check_identifier("applicationCode", application_code)
    check_identifier("clientId", client_id)


def is_identifier(value: str) -> bool:
    """Whether a device or an application could have this id."""
    try:
        check_identifier("id", value)
    except (InvalidMessageError, UnicodeEncodeError):
        return False
    return 0 < len(value) <= MAX_IDENTIFIER_BYTES


def check_identifier(field: str, value: str) -> None:
    if not value.isascii() and len(value.encode()) > MAX_IDENTIFIER_BYTES:
        raise InvalidMessageError(f"{field}: expected at most {MAX_IDENTIFIER_BYTES} bytes of UTF-8, got more")
    if "\0" in value:
        raise InvalidMessageError(f"{field}: expected text without NUL characters, got one")


def _by_field(problem: str, prefix: str) -> str:
    if match := _MISSING.fullmatch(problem):
        return f"{_path(prefix, match[2], match[1])}: expected, but missing"
    if match := _WRONG.fullmatch(problem):
        return f"{_path(prefix, match[2])}: {_lower(match[1])}"
    return f"{prefix or 'message'}: {_lower(problem)}"


def _path(*parts: str | None) -> str:
    return ".".join(part for part in parts if part)


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
