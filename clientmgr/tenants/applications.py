"""Applications: what a customer has configured for one, for messages and requests that do not say it themselves.

Apple's topic, the web pages that may send from a browser, the default language. Daemons use what is at most a few
seconds old. People change it with `clientmgr applications` or in the dashboard, and each change is audited.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict
from psycopg import AsyncConnection, Connection
from psycopg.rows import class_row

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.sqlfiles import named_queries
from clientmgr.contracts.applications import (
    checked_apple_topic,
    checked_application_code,
    checked_language,
    checked_web_origins,
)
from clientmgr.contracts.device_fields import camel
from clientmgr.tenants.registry import require_customer

_QUERIES = named_queries("tenants/queries/applications.sql")

MOST_CACHED: Final = 10_000

ApplicationKey = tuple[CustomerId, str]
"""The customer, and the application's code."""


class Application(Struct, frozen=True, rename="camel"):
    """What is configured for an application."""

    customer_id: CustomerId
    application_code: str
    apple_topic: str | None
    """Goes into a push message for Apple's devices that names none."""
    web_origins: Sequence[str]
    """Web pages whose browsers may send to the intake. Spelled as a browser's `Origin` is."""
    default_language: str | None
    """Of messages that name none."""
    updated_by: str
    updated_at: datetime


class ApplicationChange(Struct, frozen=True, rename="camel"):
    """What is to be configured. Absent: stays as it is. Null, or no origins: nothing is configured any more."""

    apple_topic: str | UnsetType | None = UNSET
    web_origins: Sequence[str] | UnsetType = UNSET
    default_language: str | UnsetType | None = UNSET

    def checked(self) -> dict[str, Any]:
        """What is set, by field; what may not be is refused by the field's name."""
        fields: dict[str, Any] = {}
        if self.apple_topic is not UNSET:
            fields["apple_topic"] = checked_apple_topic(self.apple_topic)
        if self.web_origins is not UNSET:
            fields["web_origins"] = checked_web_origins(self.web_origins)
        if self.default_language is not UNSET:
            fields["default_language"] = checked_language(self.default_language)
        return fields


class ApplicationCache:
    """The configuration for a daemon. It reads an application's again once that is `refresh_ms` old.

    Only what is asked for is read and kept: of many thousand applications a process meets a few in a second.
    """

    def __init__(self, refresh_ms: int) -> None:
        self._refresh_s = refresh_ms / 1000
        self._known: dict[ApplicationKey, tuple[float, Application | None]] = {}

    async def current(
        self, connection: AsyncConnection[Any], wanted: Collection[ApplicationKey]
    ) -> Mapping[ApplicationKey, Application]:
        """Those of the applications that have a configuration."""
        # Counted from before the read: a change during the read is seen no later than that.
        now = time.monotonic()
        known = {key: entry for key in wanted if (entry := self._known.get(key)) is not None and now < entry[0]}
        missing = {key for key in wanted if key not in known}
        if missing:
            found = await _read(connection, missing)
            read = {key: (now + self._refresh_s, found.get(key)) for key in missing}
            if len(self._known) + len(read) > MOST_CACHED:
                self._known.clear()
            self._known |= read
            known |= read
        return {key: application for key, (_, application) in known.items() if application is not None}


async def _read(
    connection: AsyncConnection[Any], keys: Collection[ApplicationKey]
) -> dict[ApplicationKey, Application]:
    async with connection.cursor(row_factory=class_row(Application)) as cursor:
        await cursor.execute(_QUERIES["find"], _parameters(keys))
        return {(one.customer_id, one.application_code): one for one in await cursor.fetchall()}


def find_application(connection: Connection[Any], customer_id: CustomerId, application_code: str) -> Application | None:
    with connection.cursor(row_factory=class_row(Application)) as cursor:
        return cursor.execute(_QUERIES["find"], _parameters([(customer_id, application_code)])).fetchone()


def list_applications(connection: Connection[Any], customer_id: CustomerId | None = None) -> Iterator[Application]:
    """All that have a configuration, by customer and code."""
    with connection.cursor(row_factory=class_row(Application)) as cursor:
        yield from cursor.execute(_QUERIES["list"], {"customer_id": customer_id})


def set_application(
    connection: Connection[Any],
    audit: AuditLogger,
    customer_id: CustomerId,
    application_code: str,
    change: ApplicationChange,
    *,
    actor: str,
) -> bool:
    """Configure an application in the caller's transaction. False: it was so already, so nothing is recorded."""
    checked_application_code(application_code)
    fields = change.checked()
    if not fields:
        raise InvalidInputError("application", f"one of {', '.join(map(camel, asdict(change)))} to set", None)
    require_customer(connection, customer_id)
    parameters = {"apple_topic": None, "web_origins": [], "default_language": None} | fields
    key = {"customer_id": customer_id, "application_code": application_code}
    changed = connection.execute(
        _QUERIES["set"], {**key, **parameters, "fields": list(fields), "updated_by": actor}
    ).fetchone()
    if changed is not None:
        values = {camel(name): _shown(value) for name, value in fields.items()}
        details = {"application": application_code, **values}
        audit.append(connection, [AuditEntry(customer_id, actor, "application.set", "set", details=details)])
    return changed is not None


def remove_application(
    connection: Connection[Any], audit: AuditLogger, customer_id: CustomerId, application_code: str, *, actor: str
) -> bool:
    """Forget what is configured. False: nothing was."""
    key = {"customer_id": customer_id, "application_code": application_code}
    removed = connection.execute(_QUERIES["remove"], key).fetchone()
    if removed is not None:
        entry = AuditEntry(
            customer_id, actor, "application.removed", "removed", details={"application": application_code}
        )
        audit.append(connection, [entry])
    return removed is not None


def _parameters(keys: Collection[ApplicationKey]) -> dict[str, list[Any]]:
    return {"customer_ids": [key[0] for key in keys], "application_codes": [key[1] for key in keys]}


def _shown(value: str | list[str] | None) -> str | None:
    return " ".join(value) if isinstance(value, list) else value
