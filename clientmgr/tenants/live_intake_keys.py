"""The keys that count, as the intake itself needs them, and what the secrets of `app` keys are derived from.

People make and revoke keys with `intake_keys`, which also needs the audit log's key. The intake does not.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import class_row

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.private_files import kept_secret
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries

CHANNEL: Final = "intake_keys"
"""Whoever listens there is told of every change."""

_QUERIES = named_queries("tenants/queries/intake_keys.sql")


class LiveKey(Struct, frozen=True):
    """A key as the intake needs it."""

    key_id: str
    customer_id: CustomerId
    application_code: str
    kind: str
    secret_hash: bytes
    origins: Sequence[str]
    expires_at: datetime | None


def signing_key(settings: Settings) -> bytes:
    """What the secrets of `app` keys are derived from: the configured key, or one that is kept in DATA_DIR."""
    given = settings.intake_signing_key.get_secret_value()
    return (given or kept_secret(settings.data_dir, "intake_signing_key")).encode()


async def live_keys(connection: AsyncConnection[Any]) -> list[LiveKey]:
    async with connection.cursor(row_factory=class_row(LiveKey)) as cursor:
        await cursor.execute(_QUERIES["live"])
        return await cursor.fetchall()
