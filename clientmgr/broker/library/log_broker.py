"""`LogBroker`: the log on a library user's own database, which can also make its tables there."""

import asyncio
from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection
from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import ConsumerOptions, ConsumeStats, Handler, Message
from clientmgr.broker.library.own_database import OwnDatabase, migrate_log, missing_tables_explained, own_database
from clientmgr.broker.postgres.retention import trim
from clientmgr.broker.postgres.transport import PostgresBroker

KEEP_HOURS = 168.0


class _GivenSettings(Settings):
    """Settings that only the caller decides: a program's environment and its `.env` are not about us."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


class LogBroker(PostgresBroker):
    """A `Broker`. Open it with `async with`; all its connections act as the login of the URL."""

    def __init__(self, database: OwnDatabase, settings: Settings) -> None:
        super().__init__(database, settings)
        self._own_database = database

    @classmethod
    def at(cls, url: str, **settings: Any) -> "LogBroker":
        """On the database at `url`, with settings of docs/settings.md that begin with `broker_`."""
        for name, value in settings.items():
            if not name.startswith("broker_") or name not in Settings.model_fields:
                raise InvalidInputError(name, "a setting whose name begins with broker_ (docs/settings.md)", value)
        try:
            checked = _GivenSettings(**settings)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise InvalidInputError(str(problem["loc"][0]), problem["msg"], problem["input"]) from None
        return cls(own_database(url), checked)

    async def migrate(self) -> list[str]:
        """Make the log's tables, or bring them to this release; the names of what was applied. Safe to repeat."""
        return await asyncio.to_thread(migrate_log, self._own_database)

    async def trim(self, *, hours: float = KEEP_HOURS) -> int:
        """Delete messages older than `hours` that every subscription has passed; how many.

        Call it at times: nobody else does, unless a gateway runs on the database.
        """
        with missing_tables_explained():
            async with await self._connect() as connection:
                return await trim(connection, retention_hours=hours)

    async def ensure_topic(self, topic: str) -> None:
        with missing_tables_explained():
            await super().ensure_topic(topic)

    async def ensure_subscription(self, subscription: str, topic: str, *, from_start: bool = True) -> None:
        with missing_tables_explained():
            await super().ensure_subscription(subscription, topic, from_start=from_start)

    async def publish(
        self, topic: str, messages: Sequence[Message], *, connection: AsyncConnection[Any] | None = None
    ) -> None:
        with missing_tables_explained():
            await super().publish(topic, messages, connection=connection)

    async def consume(
        self,
        subscription: str,
        handler: Handler,
        *,
        options: ConsumerOptions | None = None,
        stop: asyncio.Event | None = None,
        burst: bool = False,
    ) -> ConsumeStats:
        with missing_tables_explained():
            return await super().consume(subscription, handler, options=options, stop=stop, burst=burst)
