"""Shows in the lineage what was deleted: the contact-deletion daemon, the devices and the audit log, tenant by tenant.

The audit log is asked, because a deletion stands there from the moment it is done. Only tenants of whom something was
deleted since the last look get events, with counts and no names.
"""

import time
from collections.abc import Iterator, Sequence

import dagster as dg
import msgspec

from clientmgr.base.database import Role
from clientmgr.contact_deletions.observed_deletions import DeletionsSince, observed, unobserved
from clientmgr.operations.dagster_addresses import tenants_in_dashboard
from clientmgr_dagster.automation import SENSORS
from clientmgr_dagster.catalogue import DASHBOARD
from clientmgr_dagster.defs.lineage.daemons import daemon_key
from clientmgr_dagster.defs.lineage.stores import audit_log, devices
from clientmgr_dagster.partitions import PARTITIONS
from clientmgr_dagster.policies import TENANTS_PER_RUN
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.runless_events import report_materializations

CONTACT_DELETION = daemon_key("contact-deletion")
EVENTS_A_TENANT = 3
EVENTS_A_DAY = 20_000
"""Some 20 MB of Dagster's log. Where more is deleted, a tenant's events come later and tell of more deletions each."""
MOST_EVENTS = EVENTS_A_TENANT * TENANTS_PER_RUN


class Allowance(msgspec.Struct, frozen=True):
    """The sensor's cursor: how many events it might write then. It grows with the time since."""

    events: float
    at: float

    def grown(self, now: float) -> float:
        return min(MOST_EVENTS, self.events + max(0.0, now - self.at) * EVENTS_A_DAY / 86_400)


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=SENSORS,
    description="Shows deletions in the lineage of the tenants that they concern.",
)
def deletion_lineage_sensor(
    context: dg.SensorEvaluationContext, tenants: TenantsResource
) -> dg.SensorResult | dg.SkipReason:
    """Events first, and then the record of them: killed in between, the next evaluation writes them again."""
    now = time.time()
    last = msgspec.json.decode(context.cursor, type=Allowance) if context.cursor else Allowance(MOST_EVENTS, now)
    allowed = last.grown(now)
    if allowed < EVENTS_A_TENANT:
        return dg.SkipReason("enough events for now: the next deletions are shown a little later")
    with tenants.database.connect(Role.READER) as connection:
        found = unobserved(connection, most=int(allowed) // EVENTS_A_TENANT)
    if not found:
        return dg.SkipReason("nothing was deleted")
    # A tenant that Dagster does not know yet waits: an event of an unknown partition is shown nowhere.
    known = set(context.instance.get_dynamic_partitions(PARTITIONS))
    seen = [one for one in found if one.deleted_at is None or str(one.customer_id) in known]
    deleted = [one for one in seen if one.deleted_at is not None]
    written = 0
    for events in _events(deleted, dashboard=tenants_in_dashboard(tenants.settings)):
        report_materializations(context.instance, events)
        written += len(events)
    if seen:
        with tenants.database.connect(Role.WRITER) as connection:
            observed(connection, seen)
    return dg.SensorResult(cursor=msgspec.json.encode(Allowance(allowed - written, now)).decode())


def _events(deleted: Sequence[DeletionsSince], *, dashboard: str) -> Iterator[list[dg.AssetMaterialization]]:
    """In the order of the chain."""

    def event(asset: dg.AssetKey, one: DeletionsSince, **numbers: int | str) -> dg.AssetMaterialization:
        page = dg.MetadataValue.url(f"{dashboard}/{one.customer_id}")
        return dg.AssetMaterialization(asset, partition=str(one.customer_id), metadata={**numbers, DASHBOARD: page})

    yield [
        event(CONTACT_DELETION, one, contacts_deleted=one.contacts, devices_deleted=one.devices_of_contacts)
        for one in deleted
        if one.contacts
    ]
    yield [event(devices.key, one, devices_deleted=one.devices) for one in deleted]
    yield [
        event(
            audit_log.key, one, first_row=one.seen_seq + 1, last_row=one.head_seq, hash_of_last_row=one.head_hash[:16]
        )
        for one in deleted
    ]
