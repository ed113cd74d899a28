"""A consumer process: writes a row for each message, next to the offset's, and fails at random. Ends by SIGTERM."""

import asyncio
import random
from collections.abc import Sequence

import msgspec

from clientmgr.base.database import Database
from clientmgr.base.errors import PermanentError, TransientError
from clientmgr.base.settings import load_settings
from clientmgr.broker.interface import DONE, Batch, ConsumerOptions, Message, Outcome, ReceivedMessage, Retry
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.broker.faults import mutants
from tests.broker.faults.publisher import Body
from tests.broker.faults.scenario import ECHO_TOPIC, GROUP, Chances, Task

INSERT_HANDLED = """
INSERT INTO faults.handled (tx, seq, tenant, message_id)
SELECT tx, seq, tenant, message_id
FROM unnest(%s::uuid[], %s::integer[], %s::text[], %s::bigint[])
    WITH ORDINALITY AS m (tx, seq, tenant, message_id, place)
ORDER BY place
"""
INSERT_RETRIED = "INSERT INTO faults.retried (tx, seq) SELECT * FROM unnest(%s::uuid[], %s::integer[])"
HEALED_AT = 3
FAIL_IN_THE_SERVER = "DO $$ BEGIN RAISE serialization_failure; END $$"


async def consume_until(stop: asyncio.Event, task: Task) -> None:
    if task.scenario.mutant is not None:
        mutants.MUTANTS[task.scenario.mutant].change_consumer()
    settings = load_settings(
        database_url=task.url,
        broker_publish_timeout_ms=task.scenario.cut_off_ms,
        broker_lease_s=task.scenario.lease_s,
    )
    database = Database(task.url, application_name=f"faults {task.name}")
    options = ConsumerOptions(batch_size=task.scenario.batch_size, wait_period_ms=200)
    async with PostgresBroker(database, settings) as broker:
        await broker.consume(GROUP, FaultyHandler(task.seed, task.scenario.chances), options=options, stop=stop)


class FaultyHandler:
    """Does its work, or the half of it, or nothing, and says so by exceptions of every kind."""

    def __init__(self, seed: str, chances: Chances) -> None:
        self._rng = random.Random(seed)
        self._chances = chances

    async def __call__(self, batch: Batch) -> Sequence[Outcome]:
        rng = self._rng
        fails = (
            rng.choice(["before", "after", "in the server"]) if self._happens(self._chances.transient_failure) else ""
        )
        if fails:
            # A sequence: the count survives the rollback.
            await batch.connection.execute("SELECT nextval('faults.transient_failures')")
        if fails == "before":
            raise TransientError("failed before doing anything")
        again = [self._happens(self._chances.retried_message) for _ in batch.messages]
        received = [(message, msgspec.json.decode(message.data, type=Body)) for message in batch.messages]
        done = [entry for entry, retried in zip(received, again, strict=True) if not retried]
        await self._record(batch, done, [body for (_, body), retried in zip(received, again, strict=True) if retried])
        if self._happens(self._chances.slow_batch):
            await asyncio.sleep(rng.uniform(0.0, 0.02))
        if any(body.poison for _, body in received):
            raise PermanentError("poison")
        if any(message.attempt < HEALED_AT and self._surprises(body) for message, body in received):
            raise KeyError("surprise")
        if fails == "in the server":
            await batch.connection.execute(FAIL_IN_THE_SERVER)
        if fails:
            raise TransientError("failed when all was done")
        echoes = [Message(message.data, message.tenant, message.key) for message, body in done if body.echo]
        batch.publish(ECHO_TOPIC, echoes)
        return [Retry(rng.uniform(0.0, 0.3), "once more") if retried else DONE for retried in again]

    def _surprises(self, body: Body) -> bool:
        """The same for every process: it is the message that fails, not the handler."""
        return body.tx.int % 1000 < 1000 * self._chances.surprise

    def _happens(self, chance: float) -> bool:
        return self._rng.random() < chance

    @staticmethod
    async def _record(batch: Batch, done: Sequence[tuple[ReceivedMessage, Body]], retried: Sequence[Body]) -> None:
        await batch.connection.execute(
            INSERT_HANDLED,
            (
                [body.tx for _, body in done],
                [body.seq for _, body in done],
                [message.tenant for message, _ in done],
                [int(message.message_id) for message, _ in done],
            ),
        )
        if retried:
            await batch.connection.execute(INSERT_RETRIED, ([b.tx for b in retried], [b.seq for b in retried]))
