"""Sessions: signed cookies that say who somebody is, and the token that proves that a form is ours. No I/O."""

import base64
import binascii
import hmac
import secrets
import time

import msgspec

from clientmgr_dashboard.access.users import User

LONGEST_COOKIE = 2048
PROCESS_TOKEN_S = 60.0


class Session(msgspec.Struct, frozen=True):
    """Who somebody is, and until when."""

    id: str
    name: str
    """Empty: whoever is at this machine, where nobody has to sign in."""
    expires_at: int
    password_mark: str = ""
    """A digest of the user's line in the file: a new password or role ends the session."""
    started_at: float = 0.0


class Sessions:
    """Makes and reads sessions. It keeps only the key, so any instance with the same key can read them."""

    def __init__(self, key: bytes, lifetime_s: float) -> None:
        self._key = key
        self.lifetime_s = lifetime_s

    def start(self, user: User | None) -> Session:
        """A new session of a user; None: for whoever is at this machine."""
        now = time.time()
        expires_at = int(now + self.lifetime_s)
        if user is None:
            return Session(secrets.token_urlsafe(16), "", expires_at, started_at=now)
        return Session(secrets.token_urlsafe(16), user.name, expires_at, self.password_mark(user), now)

    def cookie(self, session: Session) -> str:
        content = _text(msgspec.json.encode(session))
        return f"{content}.{_text(self._sign('session', content))}"

    def read(self, cookie: str) -> Session | None:
        """None: changed, not ours, or expired."""
        if len(cookie) > LONGEST_COOKIE or not cookie.isascii():
            return None
        content, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature, _text(self._sign("session", content))):
            return None
        try:
            session = msgspec.json.decode(_bytes(content), type=Session)
        except (ValueError, binascii.Error, msgspec.MsgspecError):
            return None
        return session if session.expires_at > time.time() else None

    def csrf_token(self, session: Session) -> str:
        """What every form and script of this session must send along; nobody else can know it."""
        return _text(self._sign("csrf", session.id))

    def is_csrf_token(self, session: Session, token: str) -> bool:
        return token.isascii() and hmac.compare_digest(token, self.csrf_token(session))

    def process_token(self, process: str) -> str:
        """By which a process of ours, which has the key too, is known for a moment."""
        content = f"{process}.{int(time.time() + PROCESS_TOKEN_S)}"
        return f"{content}.{_text(self._sign('process', content))}"

    def process_of(self, token: str) -> str:
        """The name of the process that has this token; empty: none of ours, or not any more."""
        if len(token) > LONGEST_COOKIE or not token.isascii():
            return ""
        content, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature, _text(self._sign("process", content))):
            return ""
        name, _, expires_at = content.rpartition(".")
        return name if int(expires_at) > time.time() else ""

    def password_mark(self, user: User) -> str:
        return self._sign("user", f"{user.name}:{user.role}:{user.password}").hex()[:32]

    def device(self, name: str) -> str:
        """A mark by which a browser is known as one of this person's."""
        mark = secrets.token_urlsafe(16)
        return f"{mark}.{_text(self._sign('device', f'{mark}:{name}'))}"

    def known_device(self, name: str, device: str) -> str:
        """The mark, if we gave it to this person's browser; else nothing."""
        mark, _, signature = device.partition(".")
        if len(device) > LONGEST_COOKIE or not device.isascii() or not mark:
            return ""
        return mark if hmac.compare_digest(signature, _text(self._sign("device", f"{mark}:{name}"))) else ""

    def _sign(self, purpose: str, text: str) -> bytes:
        return hmac.digest(self._key, f"{purpose}:{text}".encode(), "sha256")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
