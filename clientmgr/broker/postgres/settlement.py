"""What becomes of a handled batch, message by message, and the statements that record it in the batch's transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString, Self

from psycopg import AsyncConnection

from clientmgr.broker.interface import Dead, Outcome, Retry
from clientmgr.broker.postgres.claim import QUERIES, Claim, Record, Subscription, quoted

MAX_REASON_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Settlement:
    """Messages to come again and messages that are dead; all others are done."""

    done: int = 0
    retries: list[tuple[Record, Retry]] = field(default_factory=list)
    deaths: list[tuple[Record, Dead]] = field(default_factory=list)

    @classmethod
    def of(cls, claim: Claim, outcomes: Sequence[Outcome] | None) -> Self:
        if outcomes is None:
            return cls(len(claim.records))
        if len(outcomes) != len(claim.records):
            raise TypeError(f"the handler gave {len(outcomes)} outcomes for {len(claim.records)} messages")
        retries: list[tuple[Record, Retry]] = []
        deaths: list[tuple[Record, Dead]] = []
        for record, outcome in zip(claim.records, outcomes, strict=True):
            if isinstance(outcome, Retry):
                retries.append((record, outcome))
            elif isinstance(outcome, Dead):
                deaths.append((record, outcome))
        return cls(len(claim.records) - len(retries) - len(deaths), retries, deaths)

    @classmethod
    def all_dead(cls, claim: Claim, error: Exception) -> Self:
        verdict = Dead(str(error) or type(error).__name__, type(error).__name__)
        return cls(deaths=[(record, verdict) for record in claim.records])

    def shortest_delay_s(self) -> float | None:
        return min((retry.delay_s for _, retry in self.retries), default=None)

    async def send(self, connection: AsyncConnection[Any], subscription: Subscription) -> None:
        """Record the retries and the dead. The messages themselves are copied inside the database."""
        group = {"group_id": subscription.group_id, "topic_id": subscription.topic_id}
        if self.retries:
            await connection.execute(
                QUERIES["park"],
                group
                | {
                    "offsets": [record.offset for record, _ in self.retries],
                    "attempts": [record.message.attempt for record, _ in self.retries],
                    "delays_s": [max(0.0, retry.delay_s) for _, retry in self.retries],
                    "reasons": [as_text(retry.reason) for _, retry in self.retries],
                },
            )
        if self.deaths:
            await connection.execute(
                QUERIES["bury"],
                group
                | {
                    "offsets": [record.offset for record, _ in self.deaths],
                    "attempts": [record.message.attempt for record, _ in self.deaths],
                    "error_classes": [as_text(dead.error_class) for _, dead in self.deaths],
                    "exceptions": [as_text(dead.reason) for _, dead in self.deaths],
                },
            )


async def send_advance(
    connection: AsyncConnection[Any],
    subscription: Subscription,
    claim: Claim,
    new_offset: int,
    then: LiteralString = "",
) -> None:
    """Record that all before `new_offset` is settled. Fails, and the transaction with it, if the claim is lost.

    `then`: statements to follow, like `COMMIT`. All go in one message: written as text for that, because psycopg's
    pipeline takes three times the processor time. The first that fails takes those after it along.
    """
    place = (subscription.topic_id, claim.partition_id, claim.first_offset, new_offset)
    advance = f"SELECT clientmgr.advance_offset({quoted(subscription.group_id)}, {', '.join(map(str, place))})"
    await connection.execute(f"{advance}; {then}".encode())


async def send_postpone(
    connection: AsyncConnection[Any], subscription: Subscription, failed: Claim, delay_s: float
) -> None:
    """Record a failed attempt at the messages of `failed`; its partition rests for `delay_s`."""
    await connection.execute(
        QUERIES["postpone"],
        {
            "group_id": subscription.group_id,
            "topic_id": subscription.topic_id,
            "partition_id": failed.partition_id,
            "expected_offset": failed.first_offset,
            "failed_through": failed.last_offset,
            "attempts": failed.failures + 1,
            "delay_s": delay_s,
        },
    )


def as_text(reason: str) -> str:
    """What a text column can hold of an error's message, which may quote anything."""
    return reason[:MAX_REASON_CHARACTERS].replace("\0", "\\0").encode(errors="backslashreplace").decode()
