"""Any history, in any order, with duplicates, in any batches, over concurrent workers: always the same rows."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.contracts import topics
from streaming import contact_deletion, republisher, writer
from tests.devices.histories import Happening, Model, happenings
from tests.devices.test_store import devices
from tests.streaming.rig import Rig

pytestmark = pytest.mark.anyio

TENANTS = [CustomerId(customer) for customer in range(1, 7)]
TABLES = ("devices", "device_tombstones", "push_token_claims", "contact_links", "contact_tombstones")


@dataclass(frozen=True)
class Arrival:
    """Histories of a few tenants, and one way in which they may reach us."""

    histories: dict[CustomerId, list[Happening]]
    portions: list[list[tuple[CustomerId, Happening]]]
    batch_size: int


# A burst costs the same for one event as for hundreds, so an example holds many: takeovers across batches are frequent.
long_histories = st.lists(happenings, min_size=15, max_size=40)


@st.composite
def arrivals(draw: st.DrawFn) -> Arrival:
    by_tenant = dict(zip(TENANTS, draw(st.lists(long_histories, min_size=3, max_size=len(TENANTS))), strict=False))
    happened = [(tenant, happening) for tenant, history in by_tenant.items() for happening in history]
    arriving = draw(st.permutations(happened + draw(st.lists(st.sampled_from(happened), max_size=6))))
    edges = [0, *sorted(draw(st.lists(st.integers(0, len(arriving)), max_size=8))), len(arriving)]
    portions = [list(arriving[start:end]) for start, end in pairwise(edges) if start < end]
    return Arrival(by_tenant, portions, draw(st.integers(1, 9)))


def message(tenant: CustomerId, happening: Happening) -> dict[str, Any]:
    if happening.kind == "contact.deleted":
        return {"eventId": "d", "customerId": tenant, "deletedAt": happening.at, **happening.content}
    return happening.message() | {"customerId": tenant}


def on_a_clean_slate(rig: Rig) -> None:
    if not rig.query("SELECT 1 FROM clientmgr.tenants WHERE customer_id = %s", TENANTS[0]):
        rig.activate(*TENANTS)
    tables = ", ".join(f"{quoted_schema(tenant)}.{table}" for tenant in TENANTS for table in TABLES)
    rig.query(f"TRUNCATE {tables}")


@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # an example takes a second: shrinking would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(arrival=arrivals())
async def test_any_arrival_over_concurrent_workers_leaves_what_the_sorted_history_leaves(
    rig: Rig, arrival: Arrival
) -> None:
    on_a_clean_slate(rig)
    for portion in arrival.portions:
        for topic, is_deletion in ((topics.WRITER, False), (topics.CONTACT_DELETION, True)):
            chosen = [one for one in portion if (one[1].kind == "contact.deleted") is is_deletion]
            await rig.publish(*(message(*one) for one in chosen), topic=topic)

    patient: dict[str, Any] = {"writer_batch_size": arrival.batch_size, "writer_lock_timeout_ms": 10_000}
    await asyncio.gather(
        rig.burst(writer.DAEMON, **patient),
        rig.burst(writer.DAEMON, **patient),
        rig.burst(contact_deletion.DAEMON, contact_deletion_batch_size=arrival.batch_size),
    )
    rig.make_due()
    await asyncio.gather(rig.burst(republisher.DAEMON), rig.burst(contact_deletion.DAEMON))

    assert rig.errors == rig.topic(topics.CONTACT_DELETION_ERRORS) == []
    for tenant, history in arrival.histories.items():
        found = devices(rig.database, tenant)
        assert found == Model(history).devices
        held = Counter((key[0], device.token) for key, device in found.items() if device.token)
        assert not held or max(held.values()) == 1
        deleted = {one.content["contactId"] for one in history if one.kind == "contact.deleted"}
        assert deleted.isdisjoint(device.contact_id for device in found.values())
