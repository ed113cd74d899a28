"""Who may watch which events: signed tokens that expire (JSON Web Tokens with HS256, which any backend can make)."""

import base64
import binascii
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from clientmgr.base.errors import PermanentError
from clientmgr.base.private_files import kept_secret
from clientmgr.base.settings import Settings

ALL_EVENTS = "*"
LONGEST_TOKEN = 4096
_HEADER = {"alg": "HS256", "typ": "JWT"}


class TokenError(PermanentError):
    """An invalid token. The message says why; the client that sent the token may see it."""


class _Header(msgspec.Struct):
    alg: str


class _Claims(msgspec.Struct, omit_defaults=True):
    events: list[str]
    exp: float
    sid: str = ""
    sub: str = ""
    iat: float = 0.0


@dataclass(frozen=True, slots=True)
class Grant:
    """What a connection may see, and until when."""

    events: frozenset[str]
    expires_at: float
    session: str = ""
    """The dashboard session that it was made from, which may end before it; empty: none."""
    user: str = ""
    started_at: float = 0.0
    """When that session began."""

    def allows(self, event: str) -> bool:
        return ALL_EVENTS in self.events or event in self.events


EVERYTHING = Grant(frozenset({ALL_EVENTS}), float("inf"))


def token_key(settings: Settings) -> bytes:
    """LIVE_TOKEN_KEY, or a key in the data folder that is created on first use."""
    if given := settings.live_token_key.get_secret_value():
        return given.encode()
    return kept_secret(settings.data_dir, "live_token_key").encode()


def make_token(
    key: bytes,
    events: Sequence[str],
    lifetime_s: float,
    *,
    now: float | None = None,
    session: tuple[str, str, float] | None = None,
) -> str:
    """A token for the given events, or for all of them (`*`). `session`: its id, its user and when it began."""
    claims: dict[str, object] = {
        "events": list(events),
        "exp": int((time.time() if now is None else now) + lifetime_s),
    }
    if session is not None:
        claims |= zip(("sid", "sub", "iat"), session, strict=True)
    signed = f"{_base64(msgspec.json.encode(_HEADER))}.{_base64(msgspec.json.encode(claims))}"
    return f"{signed}.{_base64(_sign(key, signed))}"


def read_token(key: bytes, token: str, *, now: float | None = None) -> Grant:
    """What the token grants. Raises `TokenError` if its signature is not ours, or if it has expired."""
    if len(token) > LONGEST_TOKEN or not token.isascii():
        raise TokenError("the token is not one")
    signed, _, signature = token.rpartition(".")
    if not hmac.compare_digest(signature, _base64(_sign(key, signed))):
        raise TokenError("the token is not signed by us")
    try:
        header, claims = signed.split(".")
        if msgspec.json.decode(_bytes(header), type=_Header).alg != "HS256":
            raise TokenError("the token's algorithm is not HS256")
        content = msgspec.json.decode(_bytes(claims), type=_Claims)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise TokenError(f"the token can't be read: {error}") from None
    if content.exp <= (time.time() if now is None else now):
        raise TokenError("the token has expired")
    return Grant(frozenset(content.events), content.exp, content.sid, content.sub, content.iat)


def _sign(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
