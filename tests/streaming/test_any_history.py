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
from streaming import contact_deletion, push_token_status, republisher, writer
from tests.devices.histories import Happening, Model, happenings
from tests.devices.test_store import TABLES, devices
from tests.examples import examples
from tests.streaming.rig import Rig

pytestmark = pytest.mark.anyio

TOPICS = (topics.WRITER, topics.CONTACT_DELETION, topics.PUSH_TOKEN_STATUS, topics.WEB_PUSH_TOKEN_STATUS)
TENANTS = [CustomerId(customer) for customer in range(1, 7)]


@dataclass(frozen=True)
class Arrival:
    """Histories of a few tenants, and one way in which they may reach us."""

    histories: dict[CustomerId, list[Happening]]
    portions: list[list[tuple[CustomerId, Happening]]]
    batch_size: int

    def is_preceded(self, tenant: CustomerId, happening: Happening) -> bool:
        """Whether it is the deletion of a contact with links or merges before it."""
        return happening.kind == "contact.deleted" and any(
            one.kind in ("client.contactLinked", "client.contactMerged") and one.at <= happening.at
            for one in self.histories[tenant]
        )


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


def on_a_clean_slate(rig: Rig) -> None:
    if not rig.query("SELECT 1 FROM clientmgr.tenants WHERE customer_id = %s", TENANTS[0]):
        rig.activate(*TENANTS)
    tables = ", ".join(f"{quoted_schema(tenant)}.{table}" for tenant in TENANTS for table in TABLES)
    rig.query(f"TRUNCATE {tables}")


async def publish(rig: Rig, portion: list[tuple[CustomerId, Happening]]) -> None:
    for topic in TOPICS:
        chosen = [happening.message(tenant) for tenant, happening in portion if happening.topic == topic]
        await rig.publish(*chosen, topic=topic)


async def work(rig: Rig, batch_size: int) -> None:
    patient: dict[str, Any] = {"writer_batch_size": batch_size, "writer_lock_timeout_ms": 10_000}
    verdicts = push_token_status.daemon(push_token_status.TokenType.BOTH)
    await asyncio.gather(
        rig.burst(writer.DAEMON, **patient),
        rig.burst(writer.DAEMON, **patient),
        rig.burst(contact_deletion.DAEMON, contact_deletion_batch_size=batch_size),
        rig.burst(verdicts, push_token_status_batch_size=batch_size, push_token_status_wait_ms=0),
    )
    rig.make_due()
    await asyncio.gather(rig.burst(republisher.DAEMON), rig.burst(contact_deletion.DAEMON), rig.burst(verdicts))


@settings(
    max_examples=examples(24),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # an example takes a second: shrinking would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(arrival=arrivals())
async def test_any_arrival_over_concurrent_workers_leaves_what_the_rules_say_of_the_history(
    rig: Rig, arrival: Arrival
) -> None:
    """A deletion that links or merges precede waits until the writers have had those: else it depends on arrival."""
    on_a_clean_slate(rig)
    later = [one for portion in arrival.portions for one in portion if arrival.is_preceded(*one)]
    for portion in arrival.portions:
        await publish(rig, [one for one in portion if one not in later])
    await work(rig, arrival.batch_size)
    # Once more, among what came before: deletions have to stand duplicates too.
    await publish(rig, [*later, *arrival.portions[0]])
    await work(rig, arrival.batch_size)

    assert rig.errors == rig.topic(topics.CONTACT_DELETION_ERRORS) == []
    for tenant, history in arrival.histories.items():
        found = devices(rig.database, tenant)
        assert found == Model(history, tenant).devices
        held = Counter((key[0], device.token) for key, device in found.items() if device.token)
        assert not held or max(held.values()) == 1
        deleted = {one.content["contactId"] for one in history if one.kind == "contact.deleted"}
        assert deleted.isdisjoint(device.contact_id for device in found.values())
