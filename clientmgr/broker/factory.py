"""Opens a broker: the transport that the settings name, or the log on the database of a URL."""

from typing import Any, overload

from clientmgr.base.database import Database
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Broker
from clientmgr.broker.library.log_broker import LogBroker
from clientmgr.broker.library.sync_broker import SyncBroker
from clientmgr.broker.postgres.transport import PostgresBroker


@overload
def open_broker(where: str, /, **settings: Any) -> LogBroker: ...


@overload
def open_broker(where: Settings, database: Database | None = None, /) -> Broker: ...


def open_broker(where: str | Settings, database: Database | None = None, /, **settings: Any) -> Broker:
    """Not yet open: use it as `async with`. A URL opens the log there, as its login: docs/library.md.

    `settings`: those that begin with `broker_`, by their names in docs/settings.md in small letters. The environment
    does not count beside a URL. Given settings, their BROKER names the transport.
    """
    if isinstance(where, str):
        if database is not None:
            raise InvalidInputError("database", "none beside a URL", database)
        return LogBroker.at(where, **settings)
    if settings:
        raise InvalidInputError("settings", "either a Settings object or single ones", sorted(settings))
    database = database or Database.from_settings(where)
    if where.broker == "pubsub":
        # Google's client takes most of a second to import, and the log does not need it.
        from clientmgr.broker.pubsub.transport import PubSubBroker

        return PubSubBroker(database, where)
    return PostgresBroker(database, where)


def open_broker_sync(url: str, /, **settings: Any) -> SyncBroker:
    """The log at `url` for a program without asyncio: use it as `with`. Takes what `open_broker` takes with a URL."""
    return SyncBroker(LogBroker.at(url, **settings))
