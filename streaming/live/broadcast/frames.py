"""The WebSocket frames for subscribers: JSON text, built once and sent to many."""

import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from streaming.live.records import MAX_ID_LENGTH

TOPIC_PREFIX = "event:"
PING = b"\x89\x00"
LARGEST_SNAPSHOT = 512 * 1024
"""Many WebSocket clients refuse a message of more than 1 MiB unless told otherwise."""
WORTH_DEFLATING = 1024
"""Answers from this size on are compressed for clients that can take it, to about a seventh. Positions are not: one by
itself shrinks by a quarter for 50 µs. Together with what came before it, it shrinks to a fifth, but for each client
anew: 5 to 9 µs a frame, where the whole fan-out takes less than one.
"""
_TEXT: Final = 0x81
_DEFLATED_TEXT: Final = 0xC1
_SYNC_FLUSHED: Final = b"\x00\x00\xff\xff"
_encoder = msgspec.json.Encoder()


def text_frame(payload: bytes, deflate_bits: int = 0) -> bytes:
    """A text frame in one piece and unmasked, as servers send it (RFC 6455, 5.2).

    `deflate_bits` is the window of a client that takes compressed messages (RFC 7692), each of them by itself. 0: none.
    """
    if not deflate_bits or len(payload) < WORTH_DEFLATING:
        return _text_header(len(payload)) + payload
    compressor = zlib.compressobj(zlib.Z_BEST_SPEED, zlib.DEFLATED, -deflate_bits)
    deflated = compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)
    deflated = deflated.removesuffix(_SYNC_FLUSHED)
    return _make_header(_DEFLATED_TEXT, len(deflated)) + deflated


def _text_header(length: int) -> bytes:
    return _HEADERS[length] if length < len(_HEADERS) else _make_header(_TEXT, length)


def _make_header(first: int, length: int) -> bytes:
    if length < 126:
        return b"%c%c" % (first, length)
    if length < 65_536:
        return b"%c\x7e%b" % (first, length.to_bytes(2, "big"))
    return b"%c\x7f%b" % (first, length.to_bytes(8, "big"))


_HEADERS = [_make_header(_TEXT, length) for length in range(1024)]
"""Nearly all positions are shorter than this."""


def encode(**message: object) -> bytes:
    return _encoder.encode(message)


def position_start(topic: str) -> bytes:
    """How every position of a topic begins. The body follows, without its opening brace."""
    return b'{"type":"position","topic":%b,' % _encoder.encode(topic)


def position_frame(start: bytes, body: bytes) -> bytes:
    return b"%b%b%b" % (_text_header(len(start) + len(body) - 1), start, body[1:])


class Subscribed:
    """The answer to a subscription: one message, and as frames of their own the positions that are too much for it."""

    def __init__(self, message: bytes, rest: Sequence[bytes]) -> None:
        self.size = len(message) + sum(map(len, rest))
        self.positions = len(rest)
        self._message = message
        self._rest = b"".join(rest)
        self._frames: dict[int, bytes] = {}

    def frames(self, deflate_bits: int) -> bytes:
        """Made once: an outage ends with the same answer for thousands."""
        if deflate_bits not in self._frames:
            self._frames[deflate_bits] = text_frame(self._message, deflate_bits) + self._rest
        return self._frames[deflate_bits]


def subscribed(topic: str, start: bytes, known: Sequence[bytes], missed: "Missed | None" = None) -> Subscribed:
    """The last known positions of the topic's devices, and what a client missed that asked for it."""
    fitting, size = 0, 0
    bodies = [*known, *(missed.bodies if missed else ())]
    for body in bodies:
        size += len(start) + len(body)
        if size > LARGEST_SNAPSHOT:
            break
        fitting += 1
    positions = [start + body[1:] for body in bodies[:fitting]]
    parts = [
        b'{"type":"subscribed","topic":%b,"snapshot":[%b]'
        % (_encoder.encode(topic), b",".join(positions[: len(known)]))
    ]
    if missed is not None:
        told = b",".join(positions[len(known) :])
        parts.append(b',"missed":[%b],"complete":%b' % (told, b"true" if missed.complete else b"false"))
    return Subscribed(b"".join([*parts, b"}"]), [position_frame(start, body) for body in bodies[fitting:]])


class Missed(msgspec.Struct, frozen=True):
    """What came since a moment, in the order of arrival."""

    bodies: Sequence[bytes]
    complete: bool
    """Whether that is all of it."""


def event_of(topic: str) -> str | None:
    """The event of a topic. None: this is not a topic's name."""
    event = topic.removeprefix(TOPIC_PREFIX)
    if event == topic or not 0 < len(event) <= MAX_ID_LENGTH or not event.isprintable():
        return None
    return event
