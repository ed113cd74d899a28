"""What a push token is: its kinds, and what it is known by where the token itself is not kept. Pure."""

import hashlib
from typing import TYPE_CHECKING, Literal

from clientmgr.contracts.providers import TOKEN_KINDS

if TYPE_CHECKING:
    TokenKind = str
else:
    # No type checker knows what is in the registry; the decoder does, and refuses all others.
    TokenKind = Literal[TOKEN_KINDS]


def token_digest(text: str) -> bytes:
    """What a token is known by: its own digest, or that of a web push subscription's endpoint."""
    return hashlib.sha256(text.encode()).digest()
