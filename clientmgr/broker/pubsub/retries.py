"""Retries that wait in the database: handled when their time has come, in the transaction that takes them out."""

import time

from clientmgr.broker.pubsub.handling import Handling, Settled, backoff_s


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
                settled = await handling.run_handler(connection, messages)
                # Before the commit, unlike with a pull: no acknowledgement is outstanding that would bring them again.
                await handling.publish(settled.publications)
        except Exception as error:
            if connection.closed or not messages:
                raise
            if not handling.may_pass(error, messages):
                for message in messages:
                    await _handle_one(handling, message.message_id)
                return len(messages)
            delay_s = backoff_s(max(message.attempt for message in messages))
            await handling.records.postpone(connection, [message.message_id for message in messages], delay_s)
            return len(messages)
    handling.count(settled, started)
    return len(messages)


async def _handle_one(handling: Handling, message_id: str) -> None:
    started = time.monotonic()
    async with handling.pool.connection() as connection:
        settled: Settled | None = None
        async with connection.transaction():
            taken = await handling.records.take(connection, message_id)
            if taken is None:
                return  # somebody else has it
            settled = await handling.handle_alone(connection, taken)
            if settled is None:
                # It waits on, with one delivery more behind it.
                await handling.records.put_back(connection, taken, backoff_s(taken.attempt))
            else:
                await handling.publish(settled.publications)
    if settled is not None:
        handling.count(settled, started)
