"""The WebSocket frames for subscribers: JSON text, built once and sent to many."""

import msgspec

from streaming.live.records import MAX_ID_LENGTH

TOPIC_PREFIX = "event:"
PING = b"\x89\x00"
LARGEST_SNAPSHOT = 512 * 1024
"""Many WebSocket clients refuse a message of more than 1 MiB unless told otherwise."""
_TEXT = 0x81
_encoder = msgspec.json.Encoder()


def text_frame(payload: bytes) -> bytes:
    """A text frame in one piece and unmasked, as servers send it (RFC 6455, 5.2)."""
    return _text_header(len(payload)) + payload


def _text_header(length: int) -> bytes:
    return _HEADERS[length] if length < len(_HEADERS) else _make_text_header(length)


def _make_text_header(length: int) -> bytes:
    if length < 126:
        return b"%c%c" % (_TEXT, length)
    if length < 65_536:
        return b"%c\x7e%b" % (_TEXT, length.to_bytes(2, "big"))
    return b"%c\x7f%b" % (_TEXT, length.to_bytes(8, "big"))


_HEADERS = [_make_text_header(length) for length in range(1024)]
"""Nearly all positions are shorter than this."""


def message_frame(**message: object) -> bytes:
    return text_frame(_encoder.encode(message))


def error_frame(code: str, message: str) -> bytes:
    return message_frame(type="error", code=code, message=message)


def position_start(topic: str) -> bytes:
    """How every position of a topic begins. The body follows, without its opening brace."""
    return b'{"type":"position","topic":%b,' % _encoder.encode(topic)


def position_frame(start: bytes, body: bytes) -> bytes:
    return b"%b%b%b" % (_text_header(len(start) + len(body) - 1), start, body[1:])


def subscribed_frames(topic: str, start: bytes, bodies: list[bytes]) -> bytes:
    """The answer to a subscription: the last known positions of the topic's devices.

    What is too much for one message follows as positions, one by one.
    """
    fitting, size = 0, 0
    for body in bodies:
        size += len(start) + len(body)
        if size > LARGEST_SNAPSHOT:
            break
        fitting += 1
    snapshot = b",".join([start + body[1:] for body in bodies[:fitting]])
    frame = text_frame(b'{"type":"subscribed","topic":%b,"snapshot":[%b]}' % (_encoder.encode(topic), snapshot))
    return b"".join([frame, *(position_frame(start, body) for body in bodies[fitting:])])


def event_of(topic: str) -> str | None:
    """The event of a topic. None: this is not a topic's name."""
    event = topic.removeprefix(TOPIC_PREFIX)
    if event == topic or not 0 < len(event) <= MAX_ID_LENGTH or not event.isprintable():
        return None
    return event
