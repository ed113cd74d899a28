"""A request and an answer, as the connection and whoever answers know them."""

from collections.abc import Sequence

from msgspec import Struct


class Request(Struct, frozen=True):
    """A request as it came."""

    method: str
    target: str
    """Path and query, as they were sent."""
    headers: dict[str, str]
    """By their names in small letters."""
    body: bytes
    peer: str


class Response(Struct, frozen=True):
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Sequence[tuple[str, str]] = ()
