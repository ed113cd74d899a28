"""Names and messages that both transports refuse, because at least one of them could not carry them."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from clientmgr.base.errors import InvalidInputError
from clientmgr.broker.erased import ERASED_ATTRIBUTE
from clientmgr.broker.interface import Message, check_publishable

# Pub/Sub's rule, so that a topic can move from one transport to the other.
_NAME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}$")
MAX_KEY_BYTES: Final = 1024
LONGEST_DELAY: Final = timedelta(days=366)


def check_name(what: str, name: str) -> None:
    if not _NAME.match(name):
        raise InvalidInputError(what, "3 to 255 characters of A-Z a-z 0-9 - _ . ~ + %, a letter first", name)


def check_message(topic: str, message: Message, max_bytes: int, *, encoded_here: bool = False) -> None:
    """Refuse what either transport refuses, and what a text column can't hold."""
    check_publishable(topic, message, max_bytes, encoded_here=encoded_here)
    if ERASED_ATTRIBUTE in message.attributes:
        raise InvalidInputError("attributes", f"any name but {ERASED_ATTRIBUTE}, which is ours", ERASED_ATTRIBUTE)
    if message.is_special:
        _check_special(message)
    for field, value in (("tenant", message.tenant), ("key", message.key), ("dedup_key", message.dedup_key)):
        if not value or (value.isascii() and value.isalnum() and len(value) <= MAX_KEY_BYTES):
            continue  # nearly all: customer and contact ids
        try:
            too_long = len(value.encode()) > MAX_KEY_BYTES
        except UnicodeEncodeError as error:
            expected = f"text that UTF-8 can express ({error.reason})"
            raise InvalidInputError(field, expected, f"{len(value)} characters") from None
        if too_long or "\0" in value:
            raise InvalidInputError(field, f"at most {MAX_KEY_BYTES} bytes without NUL", f"{len(value.encode())} bytes")


def _check_special(message: Message) -> None:
    at = message.deliver_at
    if message.dedup_key == "":
        raise InvalidInputError("dedup_key", f"1 to {MAX_KEY_BYTES} bytes, or None", message.dedup_key)
    if at is not None and at.tzinfo is None:
        raise InvalidInputError("deliver_at", "a time with its time zone", at)
    if at is not None and at > datetime.now(UTC) + LONGEST_DELAY:
        raise InvalidInputError("deliver_at", f"a time within {LONGEST_DELAY.days} days", at)


def refuse_special(message: Message) -> None:
    """For a transport that neither keeps messages for later nor remembers keys."""
    if message.is_special:
        field = "dedup_key" if message.deliver_at is None else "deliver_at"
        raise InvalidInputError(
            field, "None: Pub/Sub has no such thing, only the PostgreSQL log has", getattr(message, field)
        )


def check_messages(topic: str, messages: Sequence[Message], max_bytes: int, *, encoded_here: bool = False) -> None:
    """`check_message` for each. For messages whose JSON needs no check, one look at all of them usually suffices."""
    if encoded_here and messages and _are_harmless(messages, max_bytes):
        return
    for message in messages:
        check_message(topic, message, max_bytes, encoded_here=encoded_here)


def _are_harmless(messages: Sequence[Message], max_bytes: int) -> bool:
    names = {message.tenant for message in messages}.union([message.key for message in messages])
    text = "".join(names)
    return (
        text.isascii()
        and "\0" not in text
        and max(map(len, names)) <= MAX_KEY_BYTES
        and max([len(message.data) for message in messages]) <= max_bytes
        and not any(message.attributes or message.is_special for message in messages)
    )
