"""Messages whose customer is not active yet: since when they wait, until when at most, and when to look again.

Waiting is no attempt: a message is put aside as it is, in the database, and none of its retries is used up.
"""

import math
import random
import time

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import TenantUnavailableError, UnknownTenantError
from clientmgr.broker.interface import FIRST_PUBLISHED_AT, ReceivedMessage, Retry

FIRST_LOOK_S, LONGEST_S = 2.5, 300.0
"""An activation makes due what waits for it. The looks in between are few, for what no activation found."""
SHORTEST_S = 0.01


def unknown_tenant(
    customer_id: CustomerId, message: ReceivedMessage, grace_s: float
) -> TenantUnavailableError | UnknownTenantError:
    """What a message for a customer that nobody knows fails with: it waits for a while, then it is given up."""
    until = first_published_at(message) + grace_s
    if time.time() >= until:
        return UnknownTenantError(f"customer {customer_id} was never activated")
    return TenantUnavailableError(
        f"customer {customer_id} is unknown; its activation may come for {grace_s:g} s", until=until
    )


def wait_for_tenant(message: ReceivedMessage, error: TenantUnavailableError) -> Retry:
    """The looks become rarer, as the limit of a backoff doubles, and are spread. The last is when the wait ends."""
    now = time.time()
    waited_s, left_s = now - first_published_at(message), error.until - now
    # Nobody may ever ask for an unknown customer: its messages get half the looks.
    limit_s = max(waited_s, FIRST_LOOK_S) if error.until == math.inf else 2 * max(waited_s, 2 * FIRST_LOOK_S)
    limit_s = min(limit_s, LONGEST_S)
    delay_s = left_s if left_s <= limit_s else random.uniform(limit_s / 2, limit_s)  # noqa: S311  # spreads load only
    # `broker.waiting_messages` finds it by this text.
    return Retry(max(delay_s, SHORTEST_S), f"waits: {error}", is_attempt=False)


def keep_first_publishing(message: ReceivedMessage, error: TenantUnavailableError) -> dict[str, str]:
    """The attribute that a message needs when it is passed on, so that its wait does not begin anew. Often none."""
    if error.until == math.inf:
        return {}
    return {FIRST_PUBLISHED_AT: str(round(first_published_at(message) * 1000))}


def first_published_at(message: ReceivedMessage) -> float:
    """In seconds since the epoch. An attribute that somebody else wrote can't make a message younger than it is."""
    published_at = message.published_at.timestamp()
    text = message.attributes.get(FIRST_PUBLISHED_AT, "")
    return min(int(text) / 1000, published_at) if text.isascii() and text.isdigit() and len(text) < 16 else published_at
