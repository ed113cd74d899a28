"""Messages: one interface, two transports. `interface` is all that a worker knows of them.

Here is what other programs may rely on: docs/library.md. Nothing that this imports may need a package of an extra.
"""

from clientmgr.base.errors import ClientManagerError, InvalidInputError, PermanentError, TransientError
from clientmgr.broker.factory import open_broker, open_broker_sync
from clientmgr.broker.interface import (
    DONE,
    Batch,
    Broker,
    ConsumerOptions,
    ConsumeStats,
    Dead,
    Done,
    Handler,
    Message,
    Outcome,
    ReceivedMessage,
    Retry,
)
from clientmgr.broker.library.log_broker import LogBroker
from clientmgr.broker.library.own_database import LogTablesError
from clientmgr.broker.library.sync_broker import SyncBatch, SyncBroker, SyncHandler
from clientmgr.broker.postgres.publish import UnknownTopicError
from clientmgr.broker.postgres.topic_administration import UnknownSubscriptionError

__all__ = [
    "DONE",
    "Batch",
    "Broker",
    "ClientManagerError",
    "ConsumeStats",
    "ConsumerOptions",
    "Dead",
    "Done",
    "Handler",
    "InvalidInputError",
    "LogBroker",
    "LogTablesError",
    "Message",
    "Outcome",
    "PermanentError",
    "ReceivedMessage",
    "Retry",
    "SyncBatch",
    "SyncBroker",
    "SyncHandler",
    "TransientError",
    "UnknownSubscriptionError",
    "UnknownTopicError",
    "open_broker",
    "open_broker_sync",
]
