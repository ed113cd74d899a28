"""The sensors on the topics that ask for activation and deletion. The cursor is the offset in the message log.

Dagster stores run requests and cursor after an evaluation has returned. So an evaluation does only what may be
repeated: it records the requests and sets bad messages aside. If it is killed, the next one reads the same messages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dagster as dg

from clientmgr.base.database import Role
from clientmgr.broker.postgres.cursor_reader import CursorReader
from clientmgr.broker.postgres.reading import LoggedMessage
from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.lifecycle import TenantRequest, decode_activation, decode_deletion
from clientmgr.contracts.publishers import actor_of
from clientmgr.contracts.run_tags import REQUESTED_BY
from clientmgr.contracts.topics import ACCOUNT_DELETION, ACTIVATE_CUSTOMER
from clientmgr.tenants.registry import TenantStatus, find_tenants
from clientmgr_dagster.automation import SENSORS
from clientmgr_dagster.defs.tenancy.account_deletion import account_deletion_job, deletion_config
from clientmgr_dagster.defs.tenancy.jobs import tenant_schema_job
from clientmgr_dagster.partitions import LIFECYCLE_TAGS, PARTITIONS, partition_range, tenants_partitions
from clientmgr_dagster.policies import TENANTS_PER_RUN
from clientmgr_dagster.resources import TenantsResource

DELETIONS_PER_TICK = 100

EVERY_LOOK_S = 1
"""Dagster's daemon looks every 5 s for sensors that are due. One that asks for 5 s is a moment too early every other
time, and is evaluated every 10 s."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A message that can be acted on."""

    offset: int
    request: TenantRequest


@dg.sensor(
    job=tenant_schema_job,
    minimum_interval_seconds=EVERY_LOOK_S,
    default_status=SENSORS,
    description=f"Reads {ACTIVATE_CUSTOMER}: registers customers, adds their partitions, asks for their schemas.",
)
def customer_activation_sensor(
    context: dg.SensorEvaluationContext, tenants: TenantsResource
) -> dg.SensorResult | dg.SkipReason:
    """Activate the customers that messages name, except those that are active or have a newer request."""
    with tenants.cursor_reader(ACTIVATE_CUSTOMER) as reader:
        messages = reader.read(context.cursor, TENANTS_PER_RUN)
        asked = _understood(context, reader, messages, decode_activation)
    if not messages:
        return dg.SkipReason(f"nothing new in {ACTIVATE_CUSTOMER}")
    customers = tenants.schema_manager().register([one.request for one in asked]) if asked else set()
    with tenants.database.connect(Role.READER) as connection:
        found = find_tenants(connection, sorted(customers))
    known = set(context.instance.get_dynamic_partitions(PARTITIONS))
    offsets = {str(one.request.customer_id): one.offset for one in asked}
    # A customer that is still being deleted is activated by the reconciler when that has ended.
    active = {str(tenant.customer_id) for tenant in found if tenant.status == TenantStatus.ACTIVE}
    waiting = {str(tenant.customer_id) for tenant in found if tenant.status == TenantStatus.ACTIVATING}
    new = sorted((active | waiting) - known, key=int)
    again = sorted(waiting & known, key=int)
    return dg.SensorResult(
        dynamic_partitions_requests=[tenants_partitions.build_add_request(new)] if new else [],
        run_requests=[
            *([_schemas(new, [offsets[key] for key in new])] if new else []),
            *(_schemas([key], [offsets[key]]) for key in again),
        ],
        cursor=str(messages[-1].c_offset),
    )


@dg.sensor(
    job=account_deletion_job,
    minimum_interval_seconds=EVERY_LOOK_S,
    default_status=SENSORS,
    description=f"Reads {ACCOUNT_DELETION}: a run for each message, which deletes the account.",
)
def account_deletion_sensor(
    context: dg.SensorEvaluationContext, tenants: TenantsResource
) -> dg.SensorResult | dg.SkipReason:
    """One run per message: each deletion has a page that says who requested it and how it ended."""
    with tenants.cursor_reader(ACCOUNT_DELETION) as reader:
        messages = reader.read(context.cursor, DELETIONS_PER_TICK)
        asked = _understood(context, reader, messages, decode_deletion)
    if not messages:
        return dg.SkipReason(f"nothing new in {ACCOUNT_DELETION}")
    if asked:
        # A run may fail before it has begun, and the message is not read again.
        tenants.schema_manager().note_deletions([one.request for one in asked])
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(
                run_key=f"{ACCOUNT_DELETION}:{one.offset}",
                run_config=deletion_config(one.request),
                tags={
                    **LIFECYCLE_TAGS,
                    REQUESTED_BY: one.request.actor,
                    "clientmgr/customer_id": str(one.request.customer_id),
                },
            )
            for one in asked
        ],
        cursor=str(messages[-1].c_offset),
    )


def _understood(
    context: dg.SensorEvaluationContext,
    reader: CursorReader,
    messages: Sequence[LoggedMessage],
    decode: Callable[[bytes, str], TenantRequest],
) -> list[Asked]:
    """What the messages ask for. A message that nobody can act on is set aside: the sensor goes on."""
    asked = []
    for message in messages:
        try:
            asked.append(Asked(message.c_offset, decode(message.data, actor_of(message.attributes))))
        except InvalidMessageError as error:
            reader.bury(message, error)
            context.log.warning(f"message {message.c_offset} is set aside, see `clientmgr failures list`: {error}")
    return asked


def _schemas(keys: Sequence[str], offsets: Sequence[int]) -> dg.RunRequest:
    """One run for keys that are added together: they are neighbours, and a range of neighbours is one run."""
    first, last = min(offsets), max(offsets)
    run_key = f"{ACTIVATE_CUSTOMER}:{first}" if first == last else f"{ACTIVATE_CUSTOMER}:{first}-{last}"
    if len(keys) == 1:
        return dg.RunRequest(run_key=run_key, partition_key=keys[0], tags=LIFECYCLE_TAGS)
    return dg.RunRequest(run_key=run_key, tags=LIFECYCLE_TAGS | partition_range(keys))
