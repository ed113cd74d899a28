"""RFC 6455, after the sections of the Autobahn test suite: what comes back for right and wrong frames.

We do not echo. A text or binary message that is no command is answered with an error, which stands for the echo here.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from tests.live.raw_websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    RawClient,
    close,
    converse,
    fragments,
    frame,
    request,
)
from tests.live.serving import Served, serving
from tests.live.stream import Stream

pytestmark = pytest.mark.anyio

BYE = close(1000)
ENDED = ("close", 1000)
ANSWER, TOO_LARGE = "bad_json", "too_large"
BROKEN, NOT_UTF8, TOO_BIG = ("close", 1002), ("close", 1007), ("close", 1009)
AT_ONCE = 20
Case = tuple[Sequence[bytes], list[object]]


@pytest.fixture
async def served(anyio_backend: object, stream: Stream) -> AsyncIterator[Served]:
    async with serving(stream.settings, live_auth="off") as instance:
        yield instance


async def check(served: Served, cases: Mapping[str, Case], *, in_pieces_of: int = 0) -> None:
    """Hold all conversations; those that went otherwise are named."""
    several = asyncio.Semaphore(AT_ONCE)

    async def hold(sent: Sequence[bytes]) -> list[object]:
        async with several:
            return await converse(served.port, sent, in_pieces_of=in_pieces_of)

    heard = await asyncio.gather(*(hold(sent) for sent, _ in cases.values()))
    wrong = {
        name: (found, expected)
        for (name, (_, expected)), found in zip(cases.items(), heard, strict=True)
        if found != expected
    }
    assert wrong == {}


async def test_1_messages_of_every_size_are_read(served: Served) -> None:
    cases: dict[str, Case] = {}
    for size in (0, 1, 125, 126, 127, 128, 4096, 4097, 65_535, 65_536):
        cases[f"text of {size}"] = [frame(TEXT, b"*" * size), BYE], [ANSWER if size <= 4096 else TOO_LARGE, ENDED]
        cases[f"binary of {size}"] = [frame(BINARY, b"\xfe" * size), BYE], [ANSWER, ENDED]
    await check(served, cases)
    await check(served, cases, in_pieces_of=997)


async def test_2_pings_are_answered_in_order_and_pongs_are_not(served: Served) -> None:
    pings = [b"payload-%d" % number for number in range(10)]
    pongs: list[object] = [("pong", payload) for payload in pings]
    cases: dict[str, Case] = {
        "empty": ([frame(PING), BYE], [("pong", b""), ENDED]),
        "text": ([frame(PING, b"Hello"), BYE], [("pong", b"Hello"), ENDED]),
        "binary": ([frame(PING, b"\x00\xff\xfe\xfd"), BYE], [("pong", b"\x00\xff\xfe\xfd"), ENDED]),
        "longest": ([frame(PING, b"\xfe" * 125), BYE], [("pong", b"\xfe" * 125), ENDED]),
        "too long": ([frame(PING, b"\xfe" * 126)], [BROKEN]),
        "pong": ([frame(PONG), BYE], [ENDED]),
        "pong with payload": ([frame(PONG, b"nobody asked"), BYE], [ENDED]),
        "pong, then ping": ([frame(PONG, b"nobody asked"), frame(PING, b"x"), BYE], [("pong", b"x"), ENDED]),
        "ten": ([*(frame(PING, payload) for payload in pings), BYE], [*pongs, ENDED]),
        "among messages": (
            [frame(TEXT, b"1"), frame(PING, b"2"), frame(TEXT, b"{"), frame(PING, b"4"), BYE],
            ["invalid_message", ("pong", b"2"), ANSWER, ("pong", b"4"), ENDED],
        ),
        "before what breaks the protocol": ([frame(PING, b"x"), frame(3)], [("pong", b"x"), BROKEN]),
    }
    await check(served, cases)
    await check(served, cases, in_pieces_of=1)


async def test_3_reserved_bits_break_the_protocol(served: Served) -> None:
    after: list[object] = [ANSWER, ("pong", b"x"), BROKEN]
    cases: dict[str, Case] = {
        f"{opcode} with {rsv}": ([frame(TEXT, b"*"), frame(PING, b"x"), frame(opcode, b"", rsv=rsv)], after)
        for opcode in (TEXT, BINARY, PING, PONG, CLOSE)
        for rsv in range(1, 8)
    }
    await check(served, cases)
    await check(served, cases, in_pieces_of=1)


async def test_4_unknown_opcodes_break_the_protocol(served: Served) -> None:
    cases: dict[str, Case] = {
        f"{opcode} with {len(payload)}": ([frame(TEXT, b"*"), frame(opcode, payload), frame(PING)], [ANSWER, BROKEN])
        for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
        for payload in (b"", b"reserved")
    }
    cases["not masked"] = [frame(TEXT, b"*", masked=False)], [BROKEN]
    await check(served, cases)


async def test_5_messages_come_in_fragments_with_control_frames_between_them(served: Served) -> None:
    one, two, three = fragments(TEXT, b"frag", b"ment", b"s")
    alone = frame(CONTINUATION, b"x")
    started = frame(TEXT, b"x", fin=False)
    cases: dict[str, Case] = {
        "a ping in fragments": ([frame(PING, b"x", fin=False), frame(CONTINUATION, b"y")], [BROKEN]),
        "a pong in fragments": ([frame(PONG, b"x", fin=False), frame(CONTINUATION, b"y")], [BROKEN]),
        "a close in fragments": ([frame(CLOSE, b"\x03\xe8", fin=False)], [BROKEN]),
        "text": ([one, two, three, BYE], [ANSWER, ENDED]),
        "binary": ([*fragments(BINARY, b"a", b"b"), BYE], [ANSWER, ENDED]),
        "empty ones": ([*fragments(TEXT, b"", b"", b""), BYE], [ANSWER, ENDED]),
        "a ping between": ([one, frame(PING, b"!"), two, three, BYE], [("pong", b"!"), ANSWER, ENDED]),
        "two pings between": (
            [one, frame(PING, b"1"), two, frame(PING, b"2"), three, BYE],
            [("pong", b"1"), ("pong", b"2"), ANSWER, ENDED],
        ),
        "a pong between": ([one, frame(PONG, b"!"), two, three, BYE], [ANSWER, ENDED]),
        "nothing to continue": ([alone], [BROKEN]),
        "nothing to continue, to be continued": ([frame(CONTINUATION, b"x", fin=False), alone], [BROKEN]),
        "nothing to continue after a message": ([frame(TEXT, b"*"), alone], [ANSWER, BROKEN]),
        "nothing to continue after fragments": ([one, two, three, alone], [ANSWER, BROKEN]),
        "text in the middle": ([started, frame(TEXT, b"y")], [BROKEN]),
        "binary in the middle": ([started, frame(BINARY, b"y")], [BROKEN]),
        "two messages": ([one, two, three, *fragments(TEXT, b"a", b"b"), BYE], [ANSWER, ANSWER, ENDED]),
    }
    await check(served, cases)
    await check(served, cases, in_pieces_of=1)


COSMOS = "κόσμε".encode()
ENCODED = {
    size: (first.to_bytes(size, "big"), last.to_bytes(size, "big"))
    for size, first, last in [
        (1, 0x00, 0x7F),
        (2, 0xC280, 0xDFBF),
        (3, 0xE0A080, 0xEFBFBF),
        (4, 0xF0908080, 0xF48FBFBF),
    ]
}
VALID = {
    "Hello-µ@ßöäüàá-UTF-8!!".encode(),
    COSMOS,
    *(bound for bounds in ENCODED.values() for bound in bounds),
    *(chr(point).encode() for point in (0xD7FF, 0xE000, 0xFFFD, 0xFFFE, 0xFFFF, 0xFDD0, 0xFEFF)),
    *(chr(plane << 16 | 0xFFFE | last).encode() for plane in range(1, 17) for last in (0, 1)),
}
UNFINISHED = {b"\xc3", b"\xdf", b"\xe0\xa0", b"\xe2\x82", b"\xef\xbf", b"\xf0\x90\x80", b"\xf0\x9f", b"\xf4\x8f\xbf"}
INVALID = {
    # What a longer sequence than four would be, and beyond the last code point
    *(b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf7\xbf\xbf\xbf", b"\xf8\x88\x80\x80\x80", b"\xfb\xbf\xbf\xbf\xbf"),
    *(b"\xfc\x84\x80\x80\x80\x80", b"\xfd\xbf\xbf\xbf\xbf\xbf", b"\xfe", b"\xff", b"\xfe\xfe\xff\xff"),
    # Continuations of nothing
    *(b"\x80", b"\xbf", *(b"\x80\xbf" * count for count in range(1, 4)), bytes(range(0x80, 0xC0))),
    # Beginnings without a continuation
    *(bytes([lead]) + b" " for lead in range(0xC0, 0xFE)),
    # Longer than they need to be
    *(b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xf8\x80\x80\x80\xaf", b"\xfc\x80\x80\x80\x80\xaf"),
    *(b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf8\x87\xbf\xbf\xbf", b"\xfc\x83\xbf\xbf\xbf\xbf"),
    *(b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf8\x80\x80\x80\x80", b"\xfc\x80\x80\x80\x80\x80"),
    # Surrogates, alone and in pairs
    *(point.to_bytes(3, "big") for point in (0xEDA080, 0xEDADBF, 0xEDAE80, 0xEDAFBF, 0xEDB080, 0xEDBE80, 0xEDBFBF)),
    *(b"\xed\xa0\x80\xed\xb0\x80", b"\xed\xaf\xbf\xed\xbf\xbf"),
}


def octets(text: bytes) -> list[bytes]:
    return fragments(TEXT, *(text[place : place + 1] for place in range(len(text))))


async def test_6_text_is_utf_8(served: Served) -> None:
    cases: dict[str, Case] = {}
    for text in VALID:
        # After a letter, so that it is no JSON whatever it is.
        cases[f"{text!r} whole"] = [frame(TEXT, b"x" + text), BYE], [ANSWER, ENDED]
        cases[f"{text!r} by octets"] = [*octets(b"x" + text), BYE], [ANSWER, ENDED]
    for text in INVALID:
        cases[f"{text!r} whole"] = [frame(TEXT, COSMOS + text + b"edited")], [NOT_UTF8]
        cases[f"{text!r} at the end"] = [frame(TEXT, COSMOS + text)], [NOT_UTF8]
        cases[f"{text!r} by octets"] = octets(text + b"edited"), [NOT_UTF8]
        # Nobody waits for a message that can't become text any more: its last fragment never comes.
        cases[f"{text!r} unfinished"] = fragments(TEXT, COSMOS, text, b"")[:2], [NOT_UTF8]
    for text in UNFINISHED:
        cases[f"{text!r} at the end"] = [frame(TEXT, COSMOS + text)], [NOT_UTF8]
        cases[f"{text!r} at the end of fragments"] = [*octets(COSMOS + text)], [NOT_UTF8]
        cases[f"{text!r} then another letter"] = fragments(TEXT, text, b"a"), [NOT_UTF8]
        cases[f"{text!r} with a ping in it"] = (
            [*fragments(TEXT, text, b"")[:1], frame(PING, b"x"), frame(CONTINUATION, b"a")],
            [("pong", b"x"), NOT_UTF8],
        )
        cases[f"{text!r} in binary"] = [frame(BINARY, text), BYE], [ANSWER, ENDED]
    assert len(cases) > 300
    await check(served, cases)


async def test_6_a_letter_may_begin_in_one_fragment_and_end_in_another(served: Served) -> None:
    text = b'{"type":"subscribe","topic":"event:' + "Zürich 😀".encode() + b'"}'
    cases: dict[str, Case] = {
        str(cut): ([*fragments(TEXT, text[:cut], text[cut:]), BYE], ["subscribed", ENDED]) for cut in range(len(text))
    }
    await check(served, cases)


async def test_7_a_close_is_answered_with_its_own_code(served: Served) -> None:
    started = frame(TEXT, b"x", fin=False)
    cases: dict[str, Case] = {
        "after a message": ([frame(TEXT, b"*"), BYE], [ANSWER, ENDED]),
        "twice": ([BYE, BYE], [ENDED]),
        "then a ping": ([BYE, frame(PING)], [ENDED]),
        "then a message": ([BYE, frame(TEXT, b"*")], [ENDED]),
        "between fragments": ([started, BYE, frame(CONTINUATION, b"y")], [ENDED]),
        "in the middle of a letter": ([frame(TEXT, b"\xc3", fin=False), BYE], [ENDED]),
        "after a message that is too big": ([frame(TEXT, b"*" * 262_144), BYE, frame(PING)], [TOO_BIG]),
        "without a code": ([frame(CLOSE)], [("close", None)]),
        "with half a code": ([frame(CLOSE, b"\x03")], [BROKEN]),
        "with a reason": ([close(1000, b"Hello World!")], [ENDED]),
        "with the longest reason": ([close(1000, b"*" * 123)], [ENDED]),
        "with too long a reason": ([close(1000, b"*" * 124)], [BROKEN]),
        "with a reason that is no text": ([close(1000, COSMOS + b"\xed\xa0\x80edited")], [NOT_UTF8]),
        "with half a letter": ([close(1000, b"\xc3")], [NOT_UTF8]),
    }
    for code in (*range(1000, 1004), *range(1007, 1012), 3000, 3999, 4000, 4999):
        cases[f"code {code}"] = [close(code, b"why")], [("close", code)]
    for code in (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535):
        cases[f"code {code}"] = [close(code)], [BROKEN]
        cases[f"code {code}, with a reason"] = [close(code, b"why")], [BROKEN]
    await check(served, cases)
    await check(served, cases, in_pieces_of=1300)


async def test_9_and_10_a_message_has_a_largest_size_however_it_comes(served: Served) -> None:
    largest = b"*" * 65_536
    pieces = [largest[place : place + 1300] for place in range(0, len(largest), 1300)]
    full = fragments(TEXT, largest, b"")
    cases: dict[str, Case] = {
        "the largest, in fragments": ([*fragments(TEXT, *pieces), BYE], [TOO_LARGE, ENDED]),
        "larger": ([frame(TEXT, largest + b"*")], [TOO_BIG]),
        "larger, in fragments": (fragments(TEXT, *pieces, b"*"), [TOO_BIG]),
        "larger, binary": ([frame(BINARY, largest + b"*")], [TOO_BIG]),
        "of 16 MB, announced": ([frame(TEXT)[:1] + b"\xff" + (16 << 20).to_bytes(8, "big")], [TOO_BIG]),
        "of 2^63 bytes, announced": ([frame(TEXT)[:1] + b"\xff" + b"\xff" * 8], [TOO_BIG]),
        "a ping is no part of it": (
            [full[0], frame(PING, b"x" * 125), full[1], BYE],
            [("pong", b"x" * 125), TOO_LARGE, ENDED],
        ),
    }
    await check(served, cases)


HELLO = b"\xf2\x48\xcd\xc9\xc9\x07\x00"
"""As RFC 7692 compresses it (7.2.3.1)."""


@pytest.mark.parametrize(
    ("offer", "agreed", "answer"),
    [
        ("permessage-bzip2", b"", BROKEN),
        ("permessage-deflate; server_max_window_bits=7", b"", BROKEN),
        ("permessage-deflate; client_max_window_bits", b"permessage-deflate", ANSWER),
    ],
)
async def test_12_and_13_compression_is_agreed_to_where_it_is_offered_rightly(
    served: Served, offer: str, agreed: bytes, answer: object
) -> None:
    client = await RawClient.connect(served.port)
    head = await client.open(request("/ws", "localhost", f"Sec-WebSocket-Extensions: {offer}"))
    assert head.startswith(b"HTTP/1.1 101")
    assert (b"permessage-deflate" in head) == bool(agreed)
    client.writer.write(frame(TEXT, HELLO, rsv=4) + BYE)
    heard = await client.everything()
    assert heard[0] == answer, heard
    client.end()


async def test_frames_that_come_together_with_the_request_are_answered_after_it(served: Served) -> None:
    client = await RawClient.connect(served.port)
    head = await client.open(request() + frame(PING, b"x") + frame(TEXT, b"*") + BYE)
    assert head.startswith(b"HTTP/1.1 101")
    assert await client.everything() == [("pong", b"x"), ANSWER, ENDED]
    client.end()
