"""Publishing through the gateway: messages are checked against Google's limits and appended in shared commits."""

from collections.abc import Mapping, Sequence

from psycopg.rows import tuple_row

from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.batcher import Batcher
from clientmgr.broker.erased import ERASED_ATTRIBUTE
from clientmgr.broker.gateway.names import Names
from clientmgr.broker.gateway.pool import Pool
from clientmgr.broker.gateway.protos import Proto
from clientmgr.broker.gateway.refusals import invalid, not_found
from clientmgr.broker.gateway.wakeups import Wakeups
from clientmgr.broker.interface import (
    MAX_ATTRIBUTE_KEY_BYTES,
    MAX_ATTRIBUTE_VALUE_BYTES,
    MAX_ATTRIBUTES,
    Message,
)
from clientmgr.broker.message_metrics import PUBLISHED
from clientmgr.broker.postgres.publish import append_transactions
from clientmgr.broker.pubsub.wire import KEY_ATTRIBUTE
from clientmgr.contracts.publishers import PUBLISHER_ATTRIBUTE

QUERIES = named_queries("gateway/queries/topics.sql")
MAX_MESSAGES = 1000
MAX_REQUEST_BYTES = 10_000_000
MAX_ORDERING_KEY_BYTES = 1024
MAX_GROUP_COMMIT = 5000


class Publishing:
    """Concurrent publishers of a topic share commits: the topic's counter admits only one at a time anyway."""

    def __init__(self, pool: Pool, names: Names, wakeups: Wakeups, cut_off_ms: int) -> None:
        self._pool = pool
        self._names = names
        self._wakeups = wakeups
        self._cut_off_ms = cut_off_ms
        self._appending: Batcher[str, Sequence[Message], range] = Batcher(self._append, len, MAX_GROUP_COMMIT)

    async def publish(self, topic: str, messages: Sequence[Message]) -> range:
        """The messages' offsets in the log, once they are committed."""
        return await self._appending.submit(topic, messages)

    async def finish(self) -> None:
        await self._appending.finish()

    async def _append(self, topic: str, batches: Sequence[Sequence[Message]]) -> list[range]:
        log_topic = self._names.log_topic(topic)
        async with self._pool.connection() as connection:
            async with connection.cursor(row_factory=tuple_row) as cursor:
                found = await (await cursor.execute(QUERIES["find"], {"log_topic": log_topic})).fetchone()
            if found is None:
                raise not_found(topic)
            # To Pub/Sub each message stands alone, so in the log it is a transaction group of its own.
            transactions = [(message,) for batch in batches for message in batch]
            # No transaction around it: few messages are one statement, and that saves two round trips.
            offsets = await append_transactions(
                connection, log_topic, transactions, cut_off_ms=self._cut_off_ms or None
            )
        PUBLISHED.labels(log_topic).inc(len(transactions))
        self._wakeups.topic_has_news(found[0])
        ranges = []
        at = 0
        for batch in batches:
            ranges.append(offsets[at : at + len(batch)])
            at += len(batch)
        return ranges


def messages_of(request: Proto, stamp: Mapping[str, str]) -> list[Message]:
    """The request's messages, each within Google's limits, with the attributes of `stamp` in addition."""
    if not request.messages:
        raise invalid("The value for message_count is too small. You passed 0 in the request, but the minimum is 1.")
    if len(request.messages) > MAX_MESSAGES:
        raise invalid(f"The value for message_count is too large. The maximum is {MAX_MESSAGES}.")
    if request.ByteSize() > MAX_REQUEST_BYTES:
        raise invalid(f"The request is too large: {request.ByteSize()} bytes, {MAX_REQUEST_BYTES} allowed.")
    return [_message(proto, stamp) for proto in request.messages]


def _message(proto: Proto, stamp: Mapping[str, str]) -> Message:
    attributes = dict(proto.attributes)
    if not proto.data and not attributes:
        raise invalid("Some of the messages are empty: each needs data or at least one attribute.")
    if len(attributes) > MAX_ATTRIBUTES:
        raise invalid(f"A message has {len(attributes)} attributes; {MAX_ATTRIBUTES} are allowed.")
    for name, value in attributes.items():
        if not name or len(name.encode()) > MAX_ATTRIBUTE_KEY_BYTES or "\0" in name:
            raise invalid(f"Attribute names have 1 to {MAX_ATTRIBUTE_KEY_BYTES} bytes without NUL: {name[:60]!r}.")
        if name.startswith("goog"):
            raise invalid(f"Attribute names must not begin with goog: {name[:60]!r}.")
        if name == ERASED_ATTRIBUTE:
            raise invalid(f"Attribute {name} is set by us alone, on messages that were erased.")
        if name == PUBLISHER_ATTRIBUTE:
            raise invalid(f"Attribute {name} is set by the gateway alone, which knows who publishes.")
        if len(value.encode()) > MAX_ATTRIBUTE_VALUE_BYTES or "\0" in value:
            raise invalid(f"Attribute {name!r} has more than {MAX_ATTRIBUTE_VALUE_BYTES} bytes, or a NUL.")
    if len(proto.ordering_key.encode()) > MAX_ORDERING_KEY_BYTES or "\0" in proto.ordering_key:
        raise invalid(f"An ordering key has at most {MAX_ORDERING_KEY_BYTES} bytes without NUL.")
    # What our own transport carries as an attribute is a column of the log: workers on either transport see the same.
    key = attributes.pop(KEY_ATTRIBUTE, "")
    attributes.update(stamp)
    return Message(bytes(proto.data), proto.ordering_key, key, attributes)
