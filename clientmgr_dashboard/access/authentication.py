"""Who a request is from, by a session's cookie, by name and password in the request, or by being at this machine."""

import asyncio
import base64
import binascii
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

from clientmgr.base.database import Database
from clientmgr.base.database import Role as DatabaseRole
from clientmgr.base.errors import SettingsError, TransientError
from clientmgr.base.exposure import is_loopback
from clientmgr.base.forwarded import counted_as
from clientmgr.base.logs import get_logger
from clientmgr.base.private_files import kept_secret
from clientmgr.base.settings import Settings
from clientmgr.base.waiting import being_cancelled
from clientmgr.operations.ended_sessions import EndedSessions
from clientmgr.operations.ending_sessions import note_users, store_ended
from clientmgr_dashboard.access.attempts import Attempts, FailureReport, TooManyAttemptsError
from clientmgr_dashboard.access.sessions import Session, Sessions
from clientmgr_dashboard.access.users import Role, User, Users, is_password

log = get_logger(__name__)

COOKIE = "clientmgr_session"
DEVICE_COOKIE = "clientmgr_device"
DEVICE_KNOWN_FOR_S = 90 * 86400
PASSWORDS_AT_ONCE = 2
"""Each keeps a core busy for a while: guesses must not take all of them."""
PASSWORDS_WAITING = 20
KEPT_FOR_KNOWN = 5
"""Of those places, for people whom we have seen before."""
LOOK_AT_USERS_EVERY_S = 1.0
ENDED_KNOWN_WITHIN_S = 1.0
"""How long a start waits for the list of ended sessions."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Whoever a request is from. They may look, at least."""

    name: str
    role: Role
    session: Session | None
    """None: the request itself carried name and password."""
    is_new: bool = False
    """The browser does not have this session's cookie yet."""
    password_mark: str = ""
    """Where the request carried name and password: a digest of the user's line in the file, as it was then."""

    @property
    def actor(self) -> str:
        """Who the audit log says did it."""
        return f"dashboard:{self.name}"


class SessionsUnknownError(TransientError):
    """Nobody knows which sessions have ended: the database is away. So none counts."""


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
        self.attempts = Attempts()
        self.report: Callable[[FailureReport], None] = _log_failure
        """Is told of wrong passwords, now and then: however many there are, these are few."""
        self.ended: EndedSessions | None = None
        self._waiting = 0
        self._checking = asyncio.Semaphore(PASSWORDS_AT_ONCE)

    @property
    def sign_in_needed(self) -> bool:
        return self.users is not None

    @contextlib.asynccontextmanager
    async def watching(self, database: Database) -> AsyncIterator[None]:
        """Know which sessions have ended, and end those of users who are removed or changed.

        Without it nobody with a session is let in.
        """
        self.ended = EndedSessions(database, store=functools.partial(store_ended, database))
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self.ended.run())]
            noted = asyncio.Event()
            if self.users is not None:
                running.append(tasks.create_task(self._watch_users(self.users, database, noted)))
            else:
                noted.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ENDED_KNOWN_WITHIN_S):
                    await self.ended.loaded.wait()
                    # Else a change made while nothing ran would end who signs in at once after the start.
                    await noted.wait()
            try:
                yield
            finally:
                for task in running:
                    task.cancel()

    async def _watch_users(self, users: Users, database: Database, first_noted: asyncio.Event) -> None:
        """Look at the file without being asked: a live connection makes no request that would."""

        def note(marks: dict[str, str]) -> list[str]:
            with database.connect(DatabaseRole.WRITER, autocommit=True) as connection:
                return note_users(connection, marks, self.sessions.lifetime_s)

        noted: dict[str, str] | None = None
        while not being_cancelled():
            # The guard refuses everybody while the file can't be read, and says why.
            with contextlib.suppress(SettingsError):
                marks = users.marks()
                if marks != noted:
                    try:
                        for name in await asyncio.to_thread(note, marks):
                            log.info("a user was removed or changed, their sessions end", user=name)
                        noted = marks
                        first_noted.set()
                    except (psycopg.Error, OSError) as error:
                        log.warning("a change of users is not in the database yet", error=str(error).strip())
            await asyncio.sleep(LOOK_AT_USERS_EVERY_S)

    def of_cookie(self, cookie: str, *, leaving: bool = False) -> Visitor | None:
        """Raises `SessionsUnknownError` where it can't be known, unless the visitor only wants to sign out."""
        session = self.sessions.read(cookie)
        if session is None:
            return None
        if self.users is not None and not leaving and (self.ended is None or not self.ended.is_current):
            raise SessionsUnknownError("which sessions have ended is not known")
        if self.ended is not None and self.ended.is_ended(session.id, session.name, session.started_at):
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

    def set_device_cookie(self, user: User) -> str:
        """The header that makes a browser known as one of this person's. It lets nobody in: it only means that others'
        wrong guesses do not count against it."""
        secure = "; Secure" if self.cookies_are_secure else ""
        value = self.sessions.device(user.name)
        return f"{DEVICE_COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax{secure}; Max-Age={DEVICE_KNOWN_FOR_S}"

    async def of_password(self, name: str, password: str, address: str, *, device: str = "") -> User | None:
        """The user with this password. Raises `TooManyAttemptsError` where it may not even be tried."""
        if self.users is None:
            return None
        name, counted = name[:64], counted_as(address)
        user = self.users.find(name)
        known_device = self.sessions.known_device(name, device)
        self.attempts.begin(name, counted, known_device)
        is_known = self.attempts.is_known(name, counted, known_device)
        if self._waiting >= PASSWORDS_WAITING - (0 if is_known else KEPT_FOR_KNOWN):
            self.attempts.withdrawn(name, counted, known_device)
            raise TooManyAttemptsError(1, 503)
        self._waiting += 1
        try:
            async with self._checking:
                matches = await asyncio.to_thread(is_password, user, password)
        finally:
            self._waiting -= 1
        if not matches:
            if report := self.attempts.failed(name, counted, exists=user is not None):
                self.report(report)
            return None
        self.attempts.succeeded(name, counted, known_device)
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
        if user is None:
            return None
        return Visitor(user.name, user.role, None, password_mark=self.sessions.password_mark(user))

    def is_unchanged(self, visitor: Visitor) -> bool:
        """Whether the user who sent name and password is still in the file, with that password and role.

        The password itself is not checked again: that is slow, and counts as an attempt.
        """
        user = None if self.users is None else self.users.find(visitor.name)
        return user is not None and visitor.password_mark == self.sessions.password_mark(user)


def _log_failure(report: FailureReport) -> None:
    log.warning("wrong passwords", user=report.name, address=report.address, failures=report.failures)
