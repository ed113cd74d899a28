"""Who a request is from, by a session's cookie, by name and password in the request, or by being at this machine."""

import asyncio
import base64
import binascii
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from clientmgr.base.exposure import is_loopback
from clientmgr.base.private_files import kept_secret
from clientmgr.base.settings import Settings
from clientmgr_dashboard.access.sessions import Session, Sessions
from clientmgr_dashboard.access.users import Role, User, Users, is_password

COOKIE = "clientmgr_session"
FAILURES_ALLOWED = 10
FORGIVEN_AFTER_S = 300.0
REMEMBERED = 10_000
PASSWORDS_AT_ONCE = 2
"""Each keeps a core busy for a while: guesses must not take all of them."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Whoever a request is from. They may look, at least."""

    name: str
    role: Role
    session: Session | None
    """None: the request itself carried name and password."""
    is_new: bool = False
    """The browser does not have this session's cookie yet."""

    @property
    def actor(self) -> str:
        """Who the audit log says did it."""
        return f"dashboard:{self.name}"


class TooManyAttemptsError(Exception):
    """Somebody is guessing passwords."""


def sessions_of(settings: Settings) -> Sessions:
    """Those of the dashboard, which Dagster's UI reads too."""
    key = settings.dashboard_session_key.get_secret_value() or kept_secret(settings.data_dir, "dashboard_session_key")
    return Sessions(key.encode(), settings.dashboard_session_hours * 3600)


class Authenticator:
    """Finds out who a request is from. It knows users and sessions."""

    def __init__(self, settings: Settings) -> None:
        self.users = Users(Path(settings.dashboard_users_file)) if settings.dashboard_users_file else None
        self.sessions = sessions_of(settings)
        # Browsers do not send a Secure cookie over plain HTTP: only at this machine may it do without.
        self.cookies_are_secure = not is_loopback(settings.dashboard_host) or bool(
            settings.dashboard_tls_certificate or settings.dashboard_url.startswith("https:")
        )
        domain = settings.dashboard_cookie_domain
        self._domain = f"; Domain={domain}" if domain else ""
        self._failures: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._checking = asyncio.Semaphore(PASSWORDS_AT_ONCE)

    @property
    def sign_in_needed(self) -> bool:
        return self.users is not None

    def of_cookie(self, cookie: str) -> Visitor | None:
        session = self.sessions.read(cookie)
        if session is None:
            return None
        if self.users is None:
            return self.at_this_machine(session) if not session.name else None
        user = self.users.find(session.name)
        if user is None or session.password_mark != self.sessions.password_mark(user):
            return None
        return Visitor(user.name, user.role, session)

    def at_this_machine(self, session: Session | None = None) -> Visitor:
        """Where nobody has to sign in, a session only proves that a form is ours."""
        return Visitor("local", Role.OPERATOR, session or self.sessions.start(None), is_new=session is None)

    def set_cookie(self, session: Session | None, *, lasting: bool = True) -> str:
        """The header that makes a browser keep a session (None: forget it). Not lasting: until it is closed."""
        value = "" if session is None else self.sessions.cookie(session)
        age = f"; Max-Age={0 if session is None else int(self.sessions.lifetime_s)}" if lasting else ""
        secure = "; Secure" if self.cookies_are_secure else ""
        return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax{self._domain}{secure}{age}"

    async def of_password(self, name: str, password: str, address: str) -> User | None:
        """The user with this password. After some wrong ones, nobody gets in from that address for a while."""
        if self.users is None:
            return None
        who = (name[:64], address)
        failures, last = self._failures.get(who, (0, 0.0))
        if time.monotonic() - last > FORGIVEN_AFTER_S:
            failures = 0
        if failures >= FAILURES_ALLOWED:
            raise TooManyAttemptsError
        # Counted before it is checked: many at once are many attempts.
        self._failures[who] = (failures + 1, time.monotonic())
        self._failures.move_to_end(who)
        if len(self._failures) > REMEMBERED:
            self._failures.popitem(last=False)
        user = self.users.find(name)
        async with self._checking:
            matches = await asyncio.to_thread(is_password, user, password)
        if not matches:
            return None
        self._failures.pop(who, None)
        return user

    async def of_authorization(self, header: str, address: str) -> Visitor | None:
        """For scripts: name and password with each request (HTTP Basic). For our own processes: what the key signed."""
        kind, _, value = header.partition(" ")
        if kind.lower() == "bearer" and (process := self.sessions.process_of(value)):
            return Visitor(f"process:{process}", Role.OPERATOR, None)
        if kind.lower() != "basic":
            return None
        try:
            name, separator, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return None
        user = await self.of_password(name, password, address) if separator else None
        return None if user is None else Visitor(user.name, user.role, None)
