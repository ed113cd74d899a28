"""Which web pages may use the intake (CORS): those that a key names. The intake has no cookies to share."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from streaming.intake.http_messages import Response
from streaming.intake.problems import RefusedError

ALLOWED_HEADERS: Final = "authorization, content-type, idempotency-key"
REMEMBERED_S: Final = 600
"""How long a browser may go by an answer to its preflight request."""


def headers_of(request: Mapping[str, str], origins: Collection[str]) -> tuple[tuple[str, str], ...]:
    """What lets a page read the answer, an error too. Empty: no browser sent it, or for a page that no key names."""
    origin = request.get("origin")
    if origin is None or origin not in origins:
        return ()
    return (
        ("access-control-allow-origin", origin),
        ("access-control-expose-headers", "retry-after"),
        ("vary", "origin"),
    )


def preflight(request: Mapping[str, str], origins: Collection[str], methods: Sequence[str]) -> Response:
    """A browser asks before it sends. It names no key: the page of any will do, and the request itself is checked."""
    if request.get("origin") not in origins:
        raise RefusedError(403, "Origin: no key names this page")
    return Response(
        204,
        headers=(
            ("access-control-allow-methods", ", ".join(methods)),
            ("access-control-allow-headers", ALLOWED_HEADERS),
            ("access-control-max-age", str(REMEMBERED_S)),
        ),
    )


def ensure_allowed(request: Mapping[str, str], origins: Collection[str]) -> None:
    """Refuse a page that this key does not name. What is no browser sends no Origin."""
    origin = request.get("origin")
    if origin is not None and origin not in origins:
        raise RefusedError(403, "Origin: the key is not for this page")
