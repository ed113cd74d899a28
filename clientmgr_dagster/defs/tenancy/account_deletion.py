"""`account_deletion`: the job that deletes one customer's account. A message requests it."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg

from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.contracts.lifecycle import TenantRequest
from clientmgr.tenants.account_deletion import Step
from clientmgr.tenants.results import Change
from clientmgr_dagster.actors import actor_behind
from clientmgr_dagster.failing import stoppable
from clientmgr_dagster.partitions import DDL_POOL, forget_partition
from clientmgr_dagster.policies import RETRY_POLICY
from clientmgr_dagster.resources import TenantsResource


class DeletionConfig(dg.Config):
    """Whose account. Who asks for it is no part of this: whoever starts the job writes the config."""

    customer_id: str
    event_id: str = ""
    claimed_by: str = ""
    occurred_at_ms: int = 0
    """0: now, and earlier requests do not count. That is right for a person who starts the job by hand."""


@dg.op(pool=DDL_POOL, retry_policy=RETRY_POLICY)
def delete_account(context: dg.OpExecutionContext, config: DeletionConfig, tenants: TenantsResource) -> None:
    """Intent audited, schema and rows gone, cached data gone, partition key gone, result audited: in this order."""
    request = _request(config, actor_behind(context.run.tags))

    def log_step(step: Step) -> None:
        context.log.info(f"customer {request.customer_id}: {step}")

    def release(customer: CustomerId) -> None:
        forget_partition(context.instance, customer)

    with stoppable(context) as still_wanted:
        result = tenants.schema_manager().delete_as_asked(
            request, on_step=log_step, release=release, still_wanted=still_wanted
        )
    metadata: dict[str, Any] = {
        "customer": str(request.customer_id),
        "requested_by": request.actor,
        "result": result.change.value,
        "devices_deleted": result.rows_deleted or 0,
    }
    if result.change is Change.FAILED:
        raise dg.Failure(f"customer {request.customer_id} is not deleted yet: {result.error}", metadata=metadata)
    if result.change is Change.SUPERSEDED:
        context.log.warning(f"customer {request.customer_id} was activated after this was asked: nothing is deleted")
    context.add_output_metadata(metadata)


@dg.job(
    name="account_deletion",
    description="Deletes a customer's account: its schema, its data elsewhere, its partition. Safe to run again.",
)
def account_deletion_job() -> None:
    delete_account()


def deletion_config(request: TenantRequest) -> dg.RunConfig:
    """The run config for a request that came as a message."""
    config = DeletionConfig(
        customer_id=str(request.customer_id),
        event_id=request.event_id,
        claimed_by=request.claimed_by,
        occurred_at_ms=0 if request.asked_at is None else round(request.asked_at.timestamp() * 1000),
    )
    return dg.RunConfig(ops={"delete_account": config})


def _request(config: DeletionConfig, actor: str) -> TenantRequest:
    asked_at = datetime.fromtimestamp(config.occurred_at_ms / 1000, UTC) if config.occurred_at_ms else None
    return TenantRequest(
        parse_customer_id(config.customer_id, field="customer_id"),
        actor,
        asked_at,
        config.event_id,
        config.claimed_by,
    )
