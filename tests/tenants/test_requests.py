"""Activations and deletions that come late, twice and in any order: the newest request decides."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts.lifecycle import TenantRequest
from clientmgr.tenants.results import Change
from clientmgr.tenants.schema_manager import TenantSchemaManager

Query = Callable[..., list[tuple[Any, ...]]]

SEVEN = CustomerId(7)
START = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = list(itertools.permutations(range(3)))


def asked(minute: int, *, actor: str = "message") -> TenantRequest:
    return TenantRequest(SEVEN, actor, START + timedelta(minutes=minute), f"event-{minute}")


def activate(manager: TenantSchemaManager, request: TenantRequest) -> None:
    if manager.register([request]):
        manager.migrate([SEVEN], actor=request.actor)


def state(query: Query) -> tuple[str, int]:
    """The tenant's status and how many schemas there are."""
    statuses = query("SELECT status FROM clientmgr.tenants WHERE customer_id = 7")
    schemas = query("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tenant\\_%%'")
    return statuses[0][0] if statuses else "never registered", schemas[0][0]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_whatever_the_order_of_arrival_the_newest_request_decides(
    manager: TenantSchemaManager, query: Query, order: tuple[int, ...]
) -> None:
    history: list[Callable[[], object]] = [
        lambda: activate(manager, asked(1)),
        lambda: manager.delete_as_asked(asked(2)),
        lambda: activate(manager, asked(3)),
    ]
    for position in order:
        history[position]()
    assert state(query) == ("active", 1)


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_customer_whose_newest_request_is_a_deletion_has_no_schema(
    manager: TenantSchemaManager, query: Query, order: tuple[int, ...]
) -> None:
    history: list[Callable[[], object]] = [
        lambda: activate(manager, asked(1)),
        lambda: activate(manager, asked(2)),
        lambda: manager.delete_as_asked(asked(3)),
    ]
    for position in order:
        history[position]()
    assert state(query) in (("deleted", 0), ("never registered", 0))


def test_a_deletion_that_comes_again_after_the_customer_came_back_takes_nothing(
    manager: TenantSchemaManager, query: Query
) -> None:
    activate(manager, asked(1))
    manager.delete_as_asked(asked(2))
    activate(manager, asked(3))
    query("INSERT INTO \"tenant_7\".devices (application_code, client_id) VALUES ('A', 'new')")

    assert manager.delete_as_asked(asked(2)).change is Change.SUPERSEDED

    assert query('SELECT client_id FROM "tenant_7".devices') == [("new",)]
    assert query("SELECT outcome FROM clientmgr.audit_log ORDER BY seq DESC LIMIT 1") == [("superseded",)]


def test_of_two_requests_at_the_same_moment_the_deletion_counts(manager: TenantSchemaManager, query: Query) -> None:
    manager.delete_as_asked(asked(1))
    activate(manager, asked(1))
    assert state(query) == ("never registered", 0)


def test_a_person_who_asks_now_overrules_a_message_whose_clock_is_ahead(
    manager: TenantSchemaManager, query: Query
) -> None:
    ahead = datetime.now(UTC) + timedelta(minutes=4)
    manager.delete_as_asked(TenantRequest(SEVEN, "message", ahead))

    (result,) = manager.activate([7], actor="cli")

    assert result.change is Change.CREATED
    assert manager.delete_as_asked(TenantRequest(SEVEN, "message", ahead)).change is Change.SUPERSEDED
    assert state(query) == ("active", 1)


def test_several_requests_for_one_customer_at_once_count_as_the_newest(
    manager: TenantSchemaManager, query: Query
) -> None:
    manager.delete_as_asked(asked(5))
    assert manager.register([asked(9), asked(3)]) == {SEVEN}
    assert query("SELECT wish, event_id FROM clientmgr.tenant_wishes") == [("active", "event-9")]


def test_a_deletion_that_has_begun_is_finished_also_when_the_customer_is_wanted_back(
    manager: TenantSchemaManager, query: Query
) -> None:
    activate(manager, asked(1))
    query("UPDATE clientmgr.tenants SET status = 'deleting'")
    assert manager.register([asked(3)]) == {SEVEN}

    assert manager.delete_as_asked(asked(2)).change is Change.DROPPED

    assert state(query) == ("deleted", 0)
    activate(manager, asked(3))
    assert state(query) == ("active", 1)


def test_two_deletions_at_once_never_take_the_schema_of_a_customer_who_came_back(
    manager: TenantSchemaManager, query: Query
) -> None:
    """The slower one finds, between its intent and its drop, that the other one is done and the customer is back."""
    activate(manager, asked(1))

    def overtaken(step: object) -> None:
        if str(step) == "nobody takes the customer for active any more":
            manager.delete_as_asked(asked(2))
            activate(manager, asked(3))

    assert manager.delete_as_asked(asked(2), on_step=overtaken).change is Change.SUPERSEDED
    assert state(query) == ("active", 1)
