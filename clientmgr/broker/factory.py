"""Opens the transport that the settings name. Its users do not know which one it is."""

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Broker
from clientmgr.broker.postgres.transport import PostgresBroker


def open_broker(settings: Settings, database: Database) -> Broker:
    """Not yet open: use it as `async with`."""
    if settings.broker == "pubsub":
        # Google's client takes most of a second to import, and the log does not need it.
        from clientmgr.broker.pubsub.transport import PubSubBroker

        return PubSubBroker(database, settings)
    return PostgresBroker(database, settings)
