"""What `clientmgr publish` is given, as messages: one JSON document, or one a line of a file or of standard input.

All of it is read and checked before anything is published: a mistake in the last line costs no one a half-done import.
"""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from clientmgr.base.errors import InvalidInputError
from clientmgr.broker.interface import Message, check_publishable
from clientmgr.contracts.publishers import PUBLISHER_ATTRIBUTE
from clientmgr.operations.failures.contracts import customer_of

IN_MEMORY_BYTES = 16 * 1024 * 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class InvalidLineError(InvalidInputError):
    """One of many messages is wrong: which, and in what."""

    def __init__(self, number: int, error: InvalidInputError) -> None:
        ValueError.__init__(self, f"line {number}: {error}; nothing was published")
        self.field = error.field


@dataclass(frozen=True, slots=True)
class MessageForm:
    """What all messages of one call have in common."""

    topic: str
    max_bytes: int
    tenant: str | None = None
    """None: the customer that the message itself names."""
    key: str = ""
    attributes: Mapping[str, str] | None = None

    def message(self, data: bytes) -> Message:
        """The message, or an error that names the field which no worker could ever accept."""
        check_publishable(self.topic, Message(data, attributes=self.attributes or {}), self.max_bytes)
        customer = customer_of(data)
        tenant = customer if self.tenant is None else self.tenant
        return Message(data, tenant, self.key, self.attributes or {})

    def messages(self, source: IO[bytes]) -> Iterator[Message]:
        """A message for each line that is not blank."""
        for number, line in _lines(source, self.max_bytes):
            try:
                yield self.message(line)
            except InvalidInputError as error:
                raise InvalidLineError(number, error) from None


def parse_attributes(pairs: Sequence[str]) -> dict[str, str]:
    """`k=v`, several times; the value may contain `=`."""
    attributes: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidInputError("--attr", "NAME=VALUE", pair)
        if name in attributes:
            raise InvalidInputError("--attr", "each name once", pair)
        if name == PUBLISHER_ATTRIBUTE:
            raise InvalidInputError("--attr", f"any name but {PUBLISHER_ATTRIBUTE}, which says who publishes", pair)
        attributes[name] = value
    return attributes


@contextlib.contextmanager
def opened(file: Path) -> Iterator[IO[bytes]]:
    """The file, `-` being standard input, as something that can be read twice."""
    with contextlib.ExitStack() as stack:
        if str(file) == "-":
            source: IO[bytes] = sys.stdin.buffer
        else:
            try:
                source = stack.enter_context(file.open("rb"))
            except OSError as error:
                raise InvalidInputError("--file", f"a file that can be read ({error.strerror})", file) from None
            if source.seekable():
                yield source
                return
        spool = stack.enter_context(tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES))
        shutil.copyfileobj(source, spool)
        spool.seek(0)
        yield spool


def _lines(source: IO[bytes], max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers. One that is too long is cut, for somebody else to refuse: it need not be read whole."""
    number = 0
    while line := source.readline(max_bytes + 3):
        number += 1
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        if text := line.strip():
            yield number, text
