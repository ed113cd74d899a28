"""What a push token is: its kinds, and what it is known by where the token itself is not kept. Pure."""

import hashlib
from typing import Literal

TokenKind = Literal["apns", "fcm_token", "fcm_fid", "hms", "webpush"]


def token_digest(text: str) -> bytes:
    """What a token is known by: its own digest, or that of a web push subscription's endpoint."""
    return hashlib.sha256(text.encode()).digest()
