"""How a message's contents are shown: as JSON where they are JSON, and else as what they are."""

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec

from clientmgr.base.masking import masked, masked_data, plain_text
from clientmgr.broker.postgres.reading import LoggedMessage


def json_line(message: LoggedMessage) -> str:
    """A message as one line of JSON, for programs: the contents are as they were published, secrets included."""
    return msgspec.json.encode(
        {
            "offset": message.c_offset,
            "publishedAt": message.published_at.astimezone(UTC),
            "tenant": message.tenant,
            "key": message.key,
            "attributes": message.attributes,
            **data_fields(message.data),
        }
    ).decode()


def text_line(message: LoggedMessage) -> str:
    """A message as one line for people, with devices' secrets masked."""
    labels = {"tenant": message.tenant, "key": message.key, **masked(dict(message.attributes))}
    words = [f"{name}={value}" for name, value in labels.items() if value]
    data = masked_data(message.data).decode(errors="backslashreplace")
    return printable("  ".join([f"#{message.c_offset}", local_time(message.published_at), *words, data]))


def data_fields(data: bytes) -> dict[str, Any]:
    """`data` with JSON exactly as it was published, on one line; where it is none, `dataText` or `dataBase64`."""
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        try:
            return {"dataText": data.decode()}
        except UnicodeDecodeError:
            return {"dataBase64": base64.b64encode(data).decode()}
    # Inside strings JSON has no line breaks of its own.
    return {"data": msgspec.Raw(data.translate(_LINE_BREAKS_TO_SPACES))}


def pretty(data: bytes) -> str:
    """The contents over several lines, indented where they are JSON."""
    return "\n".join(map(printable, plain_text(data).split("\n")))


def printable(text: str) -> str:
    """`text` without anything that a terminal would obey instead of showing it."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def local_time(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


_LINE_BREAKS_TO_SPACES = bytes.maketrans(b"\r\n", b"  ")
