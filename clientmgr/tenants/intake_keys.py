"""The table of the intake's keys: made, listed, rotated, revoked, each change audited. A secret is shown once.

At most two live keys of an application have one name: enough to replace one without a gap. The intake itself keeps the
live keys in memory (`streaming/intake/keyring.py`).
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from msgspec import Struct
from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import InvalidInputError, PermanentError
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.contracts.decoding import is_identifier
from clientmgr.contracts.intake_keys import (
    KeyKind,
    derived_secret,
    key_text,
    new_key_id,
    random_secret,
    secret_hash,
)
from clientmgr.tenants.live_intake_keys import signing_key
from clientmgr.tenants.registry import require_customer

MOST_OF_A_NAME: Final = 2
MOST_ORIGINS: Final = 20
LONGEST_NAME: Final = 64

_QUERIES = named_queries("tenants/queries/intake_keys.sql")
# As browsers spell it: no path, no default port, small letters.
_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[1-9][0-9]{0,4})?")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]*")


class UnknownKeyError(PermanentError):
    """There is no such key."""


class IntakeKey(Struct, frozen=True, rename="camel"):
    """A key, without its secret."""

    key_id: str
    customer_id: CustomerId
    application_code: str
    name: str
    kind: str
    origins: Sequence[str]
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_by: str | None
    revoked_at: datetime | None
    state: Literal["live", "expired", "revoked"]


class NewKey(Struct, frozen=True, rename="camel"):
    """A key that was just made. Its text is not kept: this is the only time that it is shown."""

    key_id: str
    key: str


def list_keys(
    connection: Connection[Any], customer_id: CustomerId | None = None, *, key_id: str | None = None
) -> Iterator[IntakeKey]:
    with connection.cursor(row_factory=class_row(IntakeKey)) as cursor:
        yield from cursor.execute(_QUERIES["list"], {"customer_id": customer_id, "key_id": key_id})


def create_key(
    connection: Connection[Any],
    audit: AuditLogger,
    settings: Settings,
    customer_id: CustomerId,
    application_code: str,
    *,
    name: str,
    kind: KeyKind,
    origins: Sequence[str] = (),
    lifetime: timedelta | None = None,
    actor: str,
) -> NewKey:
    """Make a key in the caller's transaction. `lifetime` None: until it is revoked."""
    _check(application_code, name, origins)
    require_customer(connection, customer_id)
    named = {"customer_id": customer_id, "application_code": application_code, "name": name}
    connection.execute(_QUERIES["lock"], named)
    ((live,),) = connection.execute(_QUERIES["live_of_name"], named).fetchall()
    if live >= MOST_OF_A_NAME:
        raise InvalidInputError(
            "name", f"at most {MOST_OF_A_NAME} live keys of one name (revoke one, or choose another name)", name
        )
    key_id = new_key_id()
    secret = random_secret() if kind is KeyKind.SERVER else derived_secret(signing_key(settings), key_id)
    connection.execute(
        _QUERIES["create"],
        {
            **named,
            "key_id": key_id,
            "kind": kind,
            "secret_hash": secret_hash(secret),
            "origins": sorted(set(origins)),
            "created_by": actor,
            "lifetime": lifetime,
        },
    )
    audit.append(connection, [_entry(find_key(connection, key_id), actor, "intake_key.created")])
    return NewKey(key_id, key_text(key_id, secret))


def rotate_key(
    connection: Connection[Any],
    audit: AuditLogger,
    settings: Settings,
    key_id: str,
    *,
    grace: timedelta,
    lifetime: timedelta | None = None,
    actor: str,
) -> NewKey:
    """A key like this one, which itself expires after `grace`: until then both count."""
    old = find_key(connection, key_id)
    if old.state != "live":
        raise InvalidInputError("key", "a live key", f"one that is {old.state}")
    made = create_key(
        connection,
        audit,
        settings,
        old.customer_id,
        old.application_code,
        name=old.name,
        kind=KeyKind(old.kind),
        origins=old.origins,
        lifetime=lifetime,
        actor=actor,
    )
    connection.execute(_QUERIES["expire"], {"key_id": key_id, "lifetime": grace})
    audit.append(connection, [_entry(old, actor, "intake_key.rotated")])
    return made


def revoke_key(connection: Connection[Any], audit: AuditLogger, key_id: str, *, actor: str) -> bool:
    """Revoke a key in the caller's transaction. False: it was revoked already, so nothing is recorded."""
    key = find_key(connection, key_id)
    revoked = connection.execute(_QUERIES["revoke"], {"key_id": key_id, "revoked_by": actor}).fetchone() is not None
    if revoked:
        audit.append(connection, [_entry(key, actor, "intake_key.revoked")])
    return revoked


def find_key(connection: Connection[Any], key_id: str) -> IntakeKey:
    for key in list_keys(connection, key_id=key_id):
        return key
    raise UnknownKeyError(f"there is no intake key {key_id}")


def _check(application_code: str, name: str, origins: Sequence[str]) -> None:
    if not is_identifier(application_code):
        raise InvalidInputError("applicationCode", "1 to 512 bytes without NUL", application_code[:60])
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise InvalidInputError("name", f"1 to {LONGEST_NAME} letters, digits, spaces, dots, dashes", name[:80])
    if len(origins) > MOST_ORIGINS:
        raise InvalidInputError("origins", f"at most {MOST_ORIGINS}", f"{len(origins)}")
    for origin in origins:
        if not _ORIGIN.fullmatch(origin) or origin.endswith((":80", ":443")):
            raise InvalidInputError(
                "origins", "origins as browsers spell them, like https://shop.example.com", origin[:80]
            )


def _entry(key: IntakeKey, actor: str, action: str) -> AuditEntry:
    details = {"key": key.key_id, "application": key.application_code, "name": key.name}
    return AuditEntry(key.customer_id, actor, action, "done", details=details)
