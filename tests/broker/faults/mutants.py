"""Variants of the log that are broken on purpose, each in one way. The harness must catch every one of them.

A mutant changes the database's functions before a run, or the consumer's modules inside the consumer process. The
product knows nothing of it.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import AsyncConnection, Connection

from clientmgr.base.errors import ErrorKind
from clientmgr.broker.postgres import consumer, consumption, fallback
from clientmgr.broker.postgres.claim import Claim, Record, Subscription
from clientmgr.broker.postgres.consumption import Consumption
from clientmgr.broker.postgres.settlement import send_advance
from clientmgr.broker.settling import Handled
from tests.broker.faults.check import Violation
from tests.broker.faults.scenario import Chances

# Handlers that fail by themselves would give most mutants away before the first kill.
KILLS_ONLY = Chances(transient_failure=0.0, poison=0.0, surprise=0.0, slow_commit=0.1)

SEQUENCE_OFFSETS = """
CREATE SEQUENCE faults.offsets;
GRANT USAGE, SELECT, UPDATE ON SEQUENCE faults.offsets TO clientmgr_writer;
CREATE OR REPLACE FUNCTION clientmgr.reserve_offsets(
    topic text, message_count bigint, own_transaction_id uuid, cut_off_ms integer,
    OUT topic_id integer, OUT first_offset bigint, OUT total_partitions integer, OUT transaction_id uuid
)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT c.id, c.total_partitions INTO topic_id, total_partitions
    FROM clientmgr.log_counter AS c WHERE c.topic = reserve_offsets.topic;
    transaction_id := coalesce(own_transaction_id, gen_random_uuid());
    -- The lock makes the block contiguous and is gone at once: unlike the counter's, it does not last to the commit.
    PERFORM pg_advisory_lock(5);
    first_offset := nextval('faults.offsets');
    PERFORM setval('faults.offsets', first_offset + message_count - 1);
    PERFORM pg_advisory_unlock(5);
    -- Publishers reserve at their COMMIT: without this, hardly anything would happen between the two.
    PERFORM pg_sleep(random() * 0.02);
END
$$;
"""


def _change_nothing(_connection: Connection[Any]) -> None:
    pass


def _leave_consumer_alone() -> None:
    pass


@dataclass(frozen=True)
class Mutant:
    """A way to be broken, and what the check must find because of it."""

    found_as: Violation | None
    """None: the variant is harmless, and nothing may be found."""
    change_database: Callable[[Connection[Any]], None] = _change_nothing
    change_consumer: Callable[[], None] = _leave_consumer_alone
    chances: Chances = KILLS_ONLY


def _acknowledge_before_handling() -> None:
    handle = Consumption.handle

    async def acknowledge_and_handle(
        self: Consumption, connection: AsyncConnection[Any], claim: Claim
    ) -> Handled[Record]:
        await send_advance(connection, self.subscription, claim, claim.last_offset + 1)
        await connection.execute("COMMIT")
        await connection.execute("BEGIN")
        return await handle(self, connection, claim)

    async def acknowledged_already(
        connection: AsyncConnection[Any],
        _subscription: Subscription,
        _claim: Claim,
        _new: int,
        then: LiteralString = "",
    ) -> None:
        await connection.execute(then)

    _replace(consumption.Consumption, "handle", acknowledge_and_handle)
    _replace(consumer, "send_advance", acknowledged_already)
    _replace(fallback, "send_advance", acknowledged_already)


def _acknowledge_in_a_later_transaction() -> None:
    async def commit_and_acknowledge(
        connection: AsyncConnection[Any],
        subscription: Subscription,
        claim: Claim,
        new_offset: int,
        then: LiteralString = "",
    ) -> None:
        await connection.execute("COMMIT; BEGIN")
        await asyncio.sleep(random.uniform(0.0, 0.005))
        await send_advance(connection, subscription, claim, new_offset, then)

    _replace(consumer, "send_advance", commit_and_acknowledge)
    _replace(fallback, "send_advance", commit_and_acknowledge)


def _give_up_at_once() -> None:
    _replace(consumption.Consumption, "judge", lambda *_: ErrorKind.PERMANENT)


def _replace(where: object, name: str, replacement: object) -> None:
    assert hasattr(where, name), f"{where} has no {name}: this mutant no longer breaks anything"
    setattr(where, name, replacement)


def _end_batches_anywhere(connection: Connection[Any]) -> None:
    _edit_function(
        connection, "claim_batch", "SELECT m.tx_last_offset INTO last_offset", "SELECT m.c_offset INTO last_offset"
    )


def _do_not_lock_the_claim(connection: Connection[Any]) -> None:
    _edit_function(connection, "claim_batch", "FOR NO KEY UPDATE OF o SKIP LOCKED", "")


def _do_not_lock_the_claim_and_trust_it(connection: Connection[Any]) -> None:
    _do_not_lock_the_claim(connection)
    _edit_function(connection, "advance_offset", "AND o.next_offset = expected_offset", "")


def _do_not_wait_behind_held_messages(connection: Connection[Any]) -> None:
    _edit_function(connection, "claim_batch", "any_held := FOUND", "any_held := false")


def _scatter_tenants(connection: Connection[Any]) -> None:
    _edit_function(connection, "partition_of", "abs((hashtext(host_id))::bigint)", "(random() * 1e6)::bigint")
    _edit_function(connection, "partition_of", "IMMUTABLE", "VOLATILE")


def _take_offsets_from_a_sequence(connection: Connection[Any]) -> None:
    connection.execute(SEQUENCE_OFFSETS.encode())


def _edit_function(connection: Connection[Any], name: str, old: str, new: str) -> None:
    row = connection.execute(
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'clientmgr'::regnamespace AND proname = %s",
        (name,),
    ).fetchone()
    assert row is not None, f"there is no function {name}"
    assert old in row[0], f"{name} has no {old!r}: this mutant no longer breaks anything"
    connection.execute(row[0].replace(old, new).encode())


MUTANTS = {
    "acknowledge before handling": Mutant(Violation.LOST, change_consumer=_acknowledge_before_handling),
    "acknowledge in a later transaction": Mutant(
        Violation.DOUBLED, change_consumer=_acknowledge_in_a_later_transaction
    ),
    "no batch extension": Mutant(Violation.SPLIT, change_database=_end_batches_anywhere),
    # Without the row lock alone, the condition on the offset's update still keeps a second consumer from committing.
    "no row lock": Mutant(Violation.DOUBLED, change_database=_do_not_lock_the_claim_and_trust_it),
    "no row lock, but offsets compared": Mutant(None, change_database=_do_not_lock_the_claim),
    "sequence instead of counter": Mutant(Violation.LOST, change_database=_take_offsets_from_a_sequence),
    "later messages pass held ones": Mutant(
        Violation.OUT_OF_ORDER,
        change_database=_do_not_wait_behind_held_messages,
        chances=Chances(transient_failure=0.0, poison=0.0, surprise=0.1),
    ),
    # Not asked for, but the other checks must be able to fail as well.
    "any partition for a tenant": Mutant(Violation.OUT_OF_ORDER, change_database=_scatter_tenants),
    "no second attempt": Mutant(
        Violation.WRONGLY_DEAD, change_consumer=_give_up_at_once, chances=Chances(transient_failure=0.3)
    ),
}
