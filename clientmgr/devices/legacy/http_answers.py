"""Reads an HTTP/1.1 answer from the bytes of a connection as they arrive. Pure: it knows no sockets."""

from dataclasses import dataclass

LONGEST_HEAD = 65_536
LONGEST_BODY = 16 * 1024 * 1024
"""DynamoDB's pages have 1 MB of data. As JSON that can be several times as much, never this much."""


class GarbledAnswerError(ConnectionError):
    """What came is no answer, or not all of it. Asking again can help."""


class ForeignAnswerError(GarbledAnswerError):
    """It is not what such a server would say: another one may be there."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    head: bytes
    """In small letters."""
    body: bytes
    keeps_open: bool
    """Whether the connection can serve another request."""

    def header(self, name: bytes) -> bytes | None:
        return _header(self.head, name)


class AnswerReader:
    """Collects one answer. `feed` returns it once it is complete."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._head = b""
        self._status = 0
        self._length: int | None = None
        self._is_chunked = False

    @property
    def has_begun(self) -> bool:
        return bool(self._head or self._data)

    def feed(self, data: bytes) -> Answer | None:
        self._data += data
        while not self._head:
            if not self._read_head():
                return None
            if 100 <= self._status < 200:  # "wait, the answer follows"
                self._head = b""
        if len(self._data) > LONGEST_BODY:
            raise GarbledAnswerError(f"an answer of more than {LONGEST_BODY} bytes")
        if self._is_chunked:
            body = _joined_chunks(self._data)
            return None if body is None else self._answer(body)
        if self._length is None or len(self._data) < self._length:
            return None
        if len(self._data) > self._length:
            raise GarbledAnswerError("more bytes than the answer said it had")
        return self._answer(bytes(self._data))

    def end(self) -> Answer:
        """The other side closed the connection: that ends an answer that did not say how long it is."""
        if not self._head or self._is_chunked or self._length is not None:
            raise GarbledAnswerError("the connection was closed in the middle of an answer")
        return self._answer(bytes(self._data), keeps_open=False)

    def _read_head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > LONGEST_HEAD:
                raise GarbledAnswerError(f"headers of more than {LONGEST_HEAD} bytes")
            return False
        head = bytes(self._data[: end + 2]).lower()
        del self._data[: end + 4]
        version, _, rest = head.partition(b" ")
        status = rest[:3]
        if not version.startswith(b"http/1.") or len(status) != 3 or not status.isdigit():
            raise ForeignAnswerError(f"no HTTP: {head[:40]!r}")
        self._head, self._status = head, int(status)
        self._is_chunked = b"chunked" in (_header(head, b"transfer-encoding") or b"")
        length = _header(head, b"content-length")
        if length is not None and not length.isdigit():
            raise GarbledAnswerError(f"a length that is no number: {length[:40]!r}")
        self._length = None if length is None else int(length)
        if self._length is not None and self._length > LONGEST_BODY:
            raise GarbledAnswerError(f"an answer of {self._length} bytes")
        return True

    def _answer(self, body: bytes, *, keeps_open: bool = True) -> Answer:
        stays = self._head.startswith(b"http/1.1") and b"close" not in (_header(self._head, b"connection") or b"")
        return Answer(self._status, self._head, body, keeps_open and stays)


def _header(head: bytes, name: bytes) -> bytes | None:
    at = head.find(b"\r\n%b:" % name)
    if at < 0:
        return None
    at += len(name) + 3
    return head[at : head.index(b"\r\n", at)].strip()


def _joined_chunks(data: bytearray) -> bytes | None:
    """The body, or None while some of it is missing."""
    body = bytearray()
    at = 0
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        try:
            size = int(bytes(data[at:end]).partition(b";")[0], 16)
        except ValueError:
            raise GarbledAnswerError(f"a chunk without a size: {bytes(data[at : at + 40])!r}") from None
        at = end + 2
        if not 0 <= size <= LONGEST_BODY:
            raise GarbledAnswerError(f"a chunk of {size} bytes")
        if size == 0:
            # Trailers, of which we need none, end with an empty line.
            is_complete = data.startswith(b"\r\n", at) or data.find(b"\r\n\r\n", at) >= 0
            return bytes(body) if is_complete else None
        if len(data) < at + size + 2:
            return None
        if data[at + size : at + size + 2] != b"\r\n":
            raise GarbledAnswerError("a chunk that is longer than it said")
        body += data[at : at + size]
        at += size + 2
