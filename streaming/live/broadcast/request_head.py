"""The head of a connection's one request: where it ends, and how long it may be."""

LARGEST_HEAD = 16 * 1024
"""A request line and its headers. A token has 4 KiB at most."""
_END = b"\r\n\r\n"


class RequestHead:
    """Tells the bytes of the head from those that follow it. A client may send both at once."""

    __slots__ = ("_bytes", "_last", "complete")

    def __init__(self) -> None:
        self._bytes = 0
        self._last = b""  # in case the end comes in pieces
        self.complete = False

    @property
    def too_large(self) -> bool:
        return self._bytes > LARGEST_HEAD

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """What of `data` belongs to the head, and what comes after it."""
        seen = self._last + data
        end = seen.find(_END)
        self.complete = end >= 0
        count = end + len(_END) - len(self._last) if self.complete else len(data)
        self._last = seen[1 - len(_END) :]
        self._bytes += count
        return data[:count], data[count:]
