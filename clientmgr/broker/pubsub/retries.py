"""Retries that wait in the database. When due, they are handled in the transaction that takes them out."""

import time

from clientmgr.base.errors import ErrorKind
from clientmgr.broker.interface import ReceivedMessage
from clientmgr.broker.pubsub.handling import Handling, pause_s
from clientmgr.broker.settling import Handled


async def handle_due(handling: Handling) -> int:
    """Handle one batch of due retries. Returns how many there were."""
    started = time.monotonic()
    async with handling.pool.connection() as connection:
        messages = []
        try:
            async with connection.transaction():
                messages = await handling.records.take_due(connection, handling.options.batch_size)
                if not messages:
                    return 0
                handled = await handling.run_handler(connection, messages)
                # Before the commit, unlike after a pull: nobody would deliver them again if this failed after it.
                await handling.publish(handled.publications)
        except Exception as error:
            if connection.closed or not messages:
                raise
            if handling.judge(error, messages) is not ErrorKind.TRANSIENT:
                for message in messages:
                    await _handle_one(handling, message.message_id)
                return len(messages)
            message_ids = [message.message_id for message in messages]
            await handling.records.postpone(connection, message_ids, pause_s(messages))
            return len(messages)
    handling.ledger.count(handled.settlement, started)
    return len(messages)


async def _handle_one(handling: Handling, message_id: str) -> None:
    started = time.monotonic()
    async with handling.pool.connection() as connection:
        handled: Handled[ReceivedMessage] | ErrorKind | None = None
        async with connection.transaction():
            taken = await handling.records.take(connection, message_id)
            if taken is None:
                return  # somebody else has it
            handled = await handling.handle_alone(connection, taken)
            if not isinstance(handled, Handled):
                # It goes on waiting, with one attempt more on its count.
                await handling.records.put_back(connection, taken, pause_s([taken]))
            else:
                await handling.publish(handled.publications)
    if isinstance(handled, Handled):
        handling.ledger.count(handled.settlement, started)
