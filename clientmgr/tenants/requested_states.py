"""The newest request for each customer, so that one that arrives late or twice changes nothing."""

import enum
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.sqlfiles import named_queries
from clientmgr.contracts.lifecycle import TenantRequest

_QUERIES = named_queries("tenants/queries/requested_states.sql")


class RequestedState(enum.StrEnum):
    """What a customer is to be."""

    ACTIVE = "active"
    DELETED = "deleted"


def record_requests(
    connection: Connection[Any], requested: RequestedState, requests: Sequence[TenantRequest]
) -> set[CustomerId]:
    """Note the requests in the caller's transaction; return the customers for whom `requested` is what counts now.

    The customers' rows stay locked until the transaction ends. Take them before a tenant's own row.
    """
    standing: set[CustomerId] = set()
    for overrules in (False, True):
        # Of several requests for one customer only the newest counts.
        newest = {r.customer_id: r for r in sorted(requests, key=_moment) if (r.asked_at is None) is overrules}
        if newest:
            standing |= _record(connection, requested, list(newest.values()), overrules=overrules)
    return standing


def lock_requested_state(connection: Connection[Any], customer_id: CustomerId) -> RequestedState | None:
    """What was requested last. It stays so until the caller's transaction ends. None: nothing was ever requested."""
    row = connection.execute(_QUERIES["lock"], {"customer_id": customer_id}).fetchone()
    return None if row is None else RequestedState(row[0])


def _record(
    connection: Connection[Any], requested: RequestedState, requests: Sequence[TenantRequest], *, overrules: bool
) -> set[CustomerId]:
    customer_ids = [request.customer_id for request in requests]
    connection.execute(
        _QUERIES["record"],
        {
            "requested": requested,
            "customer_ids": customer_ids,
            "asked_ats": [request.asked_at for request in requests],
            "actors": [request.actor for request in requests],
            "event_ids": [request.event_id for request in requests],
            "overrules": overrules,
        },
    )
    rows = connection.execute(_QUERIES["standing"], {"requested": requested, "customer_ids": customer_ids})
    return {CustomerId(row[0]) for row in rows}


def _moment(request: TenantRequest) -> datetime:
    return request.asked_at or datetime.max.replace(tzinfo=UTC)
