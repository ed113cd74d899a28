"""Who may sign in: a file with a line for each user. Passwords can't be read from it."""

import base64
import binascii
import enum
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clientmgr.base.errors import InvalidInputError, SettingsError
from clientmgr.base.private_files import ensure_private

# Each guess costs 32 MB and some 80 ms of a core: the least that OWASP recommends.
COST, BLOCK_SIZE, PARALLELISM = 2**15, 8, 3
MOST_MEMORY = 256 * 1024 * 1024
MOST_COST = 2**20
SHORTEST_PASSWORD = 8

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class Role(enum.StrEnum):
    """What a user may do."""

    VIEWER = "viewer"
    """Look, with secrets masked."""
    OPERATOR = "operator"
    """Act as well: replay, drop, flip, exclude, reveal."""

    def includes(self, needed: "Role") -> bool:
        return self is Role.OPERATOR or needed is Role.VIEWER


@dataclass(frozen=True, slots=True)
class User:
    name: str
    role: Role
    password: str
    """scrypt$cost$block size$parallelism$salt$hash"""


def user_line(name: str, role: Role, password: str, *, cost: int = COST) -> str:
    """A line for the users file. `cost`: of a guess; a power of two."""
    if _NAME.fullmatch(name) is None:
        raise InvalidInputError("name", "up to 64 letters, digits and any of . _ @ -", name)
    if len(password) < SHORTEST_PASSWORD:
        raise InvalidInputError("password", f"at least {SHORTEST_PASSWORD} characters", "less")
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, cost, BLOCK_SIZE, PARALLELISM)
    return f"{name}:{role}:scrypt${cost}${BLOCK_SIZE}${PARALLELISM}${_text(salt)}${_text(digest)}"


def is_password(user: User | None, password: str) -> bool:
    """Whether it is the user's. It takes as long for an unknown user, so that nobody learns which names exist."""
    kind, cost, block_size, parallelism, salt, digest = (user or _NOBODY).password.split("$")
    found = _scrypt(password, _bytes(salt), int(cost), int(block_size), int(parallelism))
    return hmac.compare_digest(found, _bytes(digest)) and user is not None and kind == "scrypt"


class Users:
    """The users file, read again when it changes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_at: tuple[int, int, int] | None = None
        self._users: Mapping[str, User] = {}
        self.find("")

    def find(self, name: str) -> User | None:
        try:
            state = self._file.stat()
            seen = (state.st_mtime_ns, state.st_size, state.st_mode)
            if seen != self._read_at:
                ensure_private(self._file, "DASHBOARD_USERS_FILE")
                self._users = parse_users(self._file.read_text(encoding="utf-8"), self._file)
                self._read_at = seen
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"DASHBOARD_USERS_FILE: {self._file} can't be read: {error}") from None
        return self._users.get(name)

    def marks(self) -> dict[str, str]:
        """A digest of each user's line. It tells whether one changed, and nothing else: the salt is in it."""
        self.find("")
        return {
            user.name: hashlib.sha256(f"{user.name}:{user.role}:{user.password}".encode()).hexdigest()[:32]
            for user in self._users.values()
        }

    def __len__(self) -> int:
        return len(self._users)


def parse_users(text: str, file: Path) -> dict[str, User]:
    """The users by name. A wrong line is refused by its number; its contents are not shown."""
    users: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, rest = line.strip().partition(":")
        role, _, password = rest.partition(":")
        if _NAME.fullmatch(name) is None or role not in set(Role) or not _is_hash(password):
            raise SettingsError(
                f"DASHBOARD_USERS_FILE: {file}, line {number}: expected NAME:ROLE:HASH as made by "
                "`clientmgr dashboard user`"
            )
        if name in users:
            raise SettingsError(f"DASHBOARD_USERS_FILE: {file}, line {number}: {name} stands there twice")
        users[name] = User(name, Role(role), password)
    if not users:
        raise SettingsError(f"DASHBOARD_USERS_FILE: {file} names no user; `clientmgr dashboard user` makes a line")
    return users


def _is_hash(password: str) -> bool:
    parts = password.split("$")
    try:
        kind, cost, block_size, parallelism, salt, digest = parts
        numbers = int(cost), int(block_size), int(parallelism)
        return (
            kind == "scrypt"
            and all(number > 0 for number in numbers)
            and numbers[0] <= MOST_COST
            and len(_bytes(salt)) >= 8
            and len(_bytes(digest)) == 32
        )
    except (ValueError, binascii.Error):
        return False


def _scrypt(password: str, salt: bytes, cost: int, block_size: int, parallelism: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=block_size, p=parallelism, maxmem=MOST_MEMORY, dklen=32
    )


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text)


_NOBODY: Final = User(
    "", Role.VIEWER, f"scrypt${COST}${BLOCK_SIZE}${PARALLELISM}${_text(bytes(16))}${_text(bytes(32))}"
)
