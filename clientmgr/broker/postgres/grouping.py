"""How messages form transaction groups. Pure.

What one transaction publishes to one topic for one tenant is one group: done as a whole, or dead as a whole. Tenants
never share one, so that no message dies for a neighbour's.
"""

from collections.abc import Sequence

from clientmgr.base.errors import InvalidInputError
from clientmgr.broker.interface import Message


def by_tenant(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """The messages in parts, one for each tenant. Each keeps its order."""
    if len({message.tenant for message in messages}) <= 1:
        return [messages]
    parts: dict[str, list[Message]] = {}
    for message in messages:
        parts.setdefault(message.tenant, []).append(message)
    return list(parts.values())


def refuse_mixed(topic: str, transaction: Sequence[Message]) -> None:
    """A group that fails is dead as a whole: it must not take another tenant's messages along."""
    if len(transaction) > 1:
        tenants = {message.tenant for message in transaction}
        if len(tenants) > 1:
            names = ", ".join(sorted(map(repr, tenants))[:5])
            raise InvalidInputError(
                "transaction", f"messages of one tenant for topic {topic}", f"{len(tenants)} tenants: {names}"
            )


def has_delays(messages: Sequence[Message]) -> bool:
    """Whether one of them waits for its time."""
    return any(message.deliver_at is not None for message in messages)


def is_special(messages: Sequence[Message]) -> bool:
    """Whether one of them waits for its time or has a dedup key."""
    return any(message.is_special for message in messages)
