"""Who may call the gateway, and what each may do: a TOML file with a table for each identity.

Tokens can't be read from it: they are random, so a plain digest of one tells nothing.
"""

import functools
import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, Final

import msgspec

from clientmgr.base.errors import InvalidInputError, SettingsError
from clientmgr.base.private_files import ensure_private

SETTING: Final = "PUBSUB_GATEWAY_IDENTITIES"
TOKEN_BYTES: Final = 32
TOKEN_PREFIX: Final = "cmgw_"  # noqa: S105  # so that scanners of code and logs recognise a leaked one
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Patterns:
    """Names of topics or subscriptions, `*` for any characters but a slash.

    Those of our own project go by their short names, those of others by `projects/…/topics/…`.
    """

    texts: tuple[str, ...] = ()

    def cover(self, name: str) -> bool:
        return _matches(self.texts, name)


@functools.lru_cache(maxsize=4096)
def _matches(texts: tuple[str, ...], name: str) -> bool:
    return any(re.fullmatch(re.escape(text).replace(r"\*", "[^/]*"), name) for text in texts)


class _Everything(Patterns):
    __slots__ = ()

    def cover(self, name: str) -> bool:
        return True


EVERYTHING: Final = _Everything()


@dataclass(frozen=True, slots=True)
class Token:
    digest: str
    expires: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        return self.expires is None or now < self.expires


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    tokens: tuple[Token, ...] = ()
    certificate: str = ""
    publish: Patterns = Patterns()
    """Topics. That of account deletions is not among them: it wants `account_deletion`."""
    subscribe: Patterns = Patterns()
    """Subscriptions to read."""
    attach: Patterns = Patterns()
    """Topics to make subscriptions on."""
    admin: Patterns = Patterns()
    """Topics and subscriptions to make, change, delete and seek."""
    account_deletion: bool = False
    tenants: frozenset[str] | None = frozenset()
    """Customer ids. None: all."""

    @property
    def actor(self) -> str:
        """What the audit log calls it."""
        return f"pubsub:{self.name}"


ANONYMOUS: Final = Identity(
    "anonymous@loopback",
    publish=EVERYTHING,
    subscribe=EVERYTHING,
    attach=EVERYTHING,
    admin=EVERYTHING,
    account_deletion=True,
    tenants=None,
)
"""Whoever calls a gateway that has no identities. Only this machine can."""


class _TokenEntry(msgspec.Struct, forbid_unknown_fields=True):
    sha256: str
    expires: Any = None


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    tenants: str | list[int]
    tokens: list[_TokenEntry] = []
    certificate: str = ""
    publish: list[str] = []
    subscribe: list[str] = []
    attach: list[str] = []
    admin: list[str] = []
    account_deletion: bool = False


class Identities:
    """The file, read again when it changes. While it can't be read nobody is let in."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, ...] | None = None
        self._by_digest: Mapping[str, Identity] = {}
        self._by_certificate: Mapping[str, Identity] = {}

    @property
    def know_certificates(self) -> bool:
        self.read()
        return bool(self._by_certificate)

    def read(self) -> None:
        """Make sure that what is known is what the file says now, or raise SettingsError."""
        try:
            state = self._file.stat()
            seen = (state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino)
            if seen == self._seen:
                return
            self._seen, self._by_digest, self._by_certificate = None, {}, {}
            ensure_private(self._file, SETTING)
            identities = parse_identities(self._file.read_text(encoding="utf-8"), self._file)
        except (OSError, UnicodeDecodeError) as error:
            self._seen = None
            raise SettingsError(f"{SETTING}: {self._file} can't be read: {error}") from None
        self._by_digest = {token.digest: identity for identity in identities for token in identity.tokens}
        self._by_certificate = {identity.certificate: identity for identity in identities if identity.certificate}
        self._seen = seen

    def of_token(self, digest: str) -> Identity | None:
        """Whose token has this digest, if it has not expired."""
        self.read()
        identity = self._by_digest.get(digest)
        if identity is None:
            return None
        now = datetime.now(UTC)
        for token in identity.tokens:
            if hmac.compare_digest(token.digest, digest):
                return identity if token.is_valid(now) else None
        return None

    def of_certificate(self, names: Sequence[str]) -> Identity | None:
        """Whose certificate has one of these names. None also where several identities would fit."""
        self.read()
        found = {name: self._by_certificate[name] for name in names if name in self._by_certificate}
        return next(iter(found.values())) if len(found) == 1 else None


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def parse_identities(text: str, file: Path) -> list[Identity]:
    """The identities, or SettingsError that names the file and the entry."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{SETTING}: {file} is no TOML: {error}") from None
    identities: list[Identity] = []
    taken: dict[str, str] = {}
    for name, table in tables.items():
        try:
            identity = _identity(name, table)
        except (msgspec.ValidationError, ValueError) as error:
            raise SettingsError(f"{SETTING}: {file}, [{name}]: {error}") from None
        credentials = [token.digest for token in identity.tokens] + [identity.certificate] * bool(identity.certificate)
        for credential in credentials:
            if taken.setdefault(credential, name) != name:
                raise SettingsError(f"{SETTING}: {file}: [{taken[credential]}] and [{name}] have the same credential")
        identities.append(identity)
    if not identities:
        raise SettingsError(f"{SETTING}: {file} names no identity; `clientmgr pubsub-gateway token` makes one")
    return identities


def check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidInputError("name", "up to 64 letters, digits and any of . _ @ -", name)


def _identity(name: str, table: Any) -> Identity:
    check_name(name)
    entry = msgspec.convert(table, _Entry)
    if not entry.tokens and not entry.certificate:
        raise ValueError("expected tokens or a certificate, got neither: nobody could call as it")
    for token in entry.tokens:
        if _DIGEST.fullmatch(token.sha256) is None:
            raise ValueError("tokens: expected sha256 as 64 hexadecimal digits, as the command prints them")
    if isinstance(entry.tenants, str) and entry.tenants != "all":
        raise ValueError('tenants: expected "all" or a list of customer ids')
    return Identity(
        name,
        tuple(Token(token.sha256, _moment(token.expires)) for token in entry.tokens),
        entry.certificate,
        Patterns(tuple(entry.publish)),
        Patterns(tuple(entry.subscribe)),
        Patterns(tuple(entry.attach)),
        Patterns(tuple(entry.admin)),
        entry.account_deletion,
        None if isinstance(entry.tenants, str) else frozenset(str(tenant) for tenant in entry.tenants),
    )


def _moment(expires: object) -> datetime | None:
    if expires is None:
        return None
    if not isinstance(expires, date):  # a datetime is one too
        raise ValueError("tokens: expected expires as a date or a time of TOML, without quotes")
    if not isinstance(expires, datetime):
        expires = datetime.combine(expires, time())
    return expires if expires.tzinfo else expires.replace(tzinfo=UTC)
