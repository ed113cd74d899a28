"""`tenant_reconciliation`: what disagreed between registry, schemas and partitions, and what was done about it.

A sensor looks every few minutes, every minute after a change, and requests a run where something is to be repaired.
What a run could not repair is tried again after growing pauses. Until then it stays visible: the asset check fails.
"""

import hashlib
import time
from collections.abc import Iterable, Sequence

import dagster as dg
import msgspec

from clientmgr.base.database import Role
from clientmgr.tenants.reconciliation import Drift, Reconciler, Repair, find_drift
from clientmgr.tenants.results import Change
from clientmgr_dagster.automation import SENSORS
from clientmgr_dagster.defs.tenancy.assets import tenant_schema
from clientmgr_dagster.failing import stoppable
from clientmgr_dagster.metadata import ROWS_SHOWN
from clientmgr_dagster.partitions import DDL_POOL, PARTITIONS, RETRIED, forget_partition
from clientmgr_dagster.resources import TenantsResource

FIRST_PAUSE_S = 60.0
LONGEST_PAUSE_S = 3600.0


class LastRequest(msgspec.Struct, frozen=True):
    """The sensor's cursor: what the last run was to repair, and when to request it again."""

    fingerprint: str
    pause_s: float
    again_at: float


@dg.asset(
    group_name="tenancy",
    kinds={"postgres"},
    pool=DDL_POOL,
    check_specs=[
        dg.AssetCheckSpec(
            "nothing_disagrees", asset="tenant_reconciliation", description="All that disagreed could be repaired."
        )
    ],
    description="Where registry, schemas and partitions disagreed, and what was done about it.",
)
def tenant_reconciliation(
    context: dg.AssetExecutionContext, tenants: TenantsResource
) -> Iterable[dg.MaterializeResult]:  # type: ignore[type-arg]
    """Repair all that is found. What can't be repaired is reported, and does not stop the rest."""
    with stoppable(context) as still_wanted:
        reconciler = Reconciler(
            tenants.database,
            tenants.settings,
            actor="dagster:tenant_reconciliation",
            manager=tenants.schema_manager(),
            release=lambda customer: forget_partition(context.instance, customer),
            still_wanted=still_wanted,
        )
        repairs = reconciler.repair(reconciler.find())
    _report_new_schemas(context.instance, repairs)
    left = [repair for repair in repairs if not repair.repaired]
    for repair in left:
        context.log.warning(f"customer {repair.drift.customer_id}: {repair.drift.kind}: {repair.outcome}")
    yield dg.MaterializeResult(
        metadata={
            "found": len(repairs),
            "repaired": len(repairs) - len(left),
            "left": len(left),
            "repairs": dg.MetadataValue.md(_table(repairs)),
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="nothing_disagrees",
                passed=not left,
                severity=dg.AssetCheckSeverity.WARN,
                metadata={"left": dg.MetadataValue.md(_table(left))},
            )
        ],
    )


tenant_reconciliation_job = dg.define_asset_job(
    "tenant_reconciliation_job",
    selection=dg.AssetSelection.assets(tenant_reconciliation),
    description="Repairs what disagrees between registry, schemas and partitions.",
)


@dg.sensor(
    job=tenant_reconciliation_job,
    minimum_interval_seconds=60,
    default_status=SENSORS,
    description="Looks for what disagrees and asks for its repair.",
)
def tenant_drift_sensor(
    context: dg.SensorEvaluationContext, tenants: TenantsResource
) -> dg.SensorResult | dg.SkipReason:
    """Request a run at once for what is new, and after a growing pause for what a run could not repair."""
    with tenants.database.connect(Role.DDL) as connection:
        drifts = find_drift(connection, grace_s=tenants.settings.tenant_reconcile_grace_s)
    if not drifts:
        return dg.SkipReason("nothing disagrees")
    now = time.time()
    last = msgspec.json.decode(context.cursor, type=LastRequest) if context.cursor else None
    request = next_request(last, _fingerprint(drifts), now)
    if request is None:
        return dg.SkipReason(f"{len(drifts)} are left as they were, for now")
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=f"{request.fingerprint}:{now:.0f}", tags=RETRIED)],
        cursor=msgspec.json.encode(request).decode(),
    )


def next_request(last: LastRequest | None, fingerprint: str, now: float) -> LastRequest | None:
    """What to request now. None: a run for the same was requested a short while ago, and did not help."""
    if last is None or last.fingerprint != fingerprint:
        return LastRequest(fingerprint, FIRST_PAUSE_S, now + FIRST_PAUSE_S)
    if now < last.again_at:
        return None
    pause_s = min(last.pause_s * 2, LONGEST_PAUSE_S)
    return LastRequest(fingerprint, pause_s, now + pause_s)


def _report_new_schemas(instance: dg.DagsterInstance, repairs: Sequence[Repair]) -> None:
    """What was created here is materialised, though not by a run of `tenant_schema`.

    A tenant that has no key yet gets it, and its run, from `tenant_registry_sensor`.
    """
    created = {str(repair.drift.customer_id) for repair in repairs if repair.outcome == Change.CREATED}
    for key in sorted(created.intersection(instance.get_dynamic_partitions(PARTITIONS)), key=int):
        instance.report_runless_asset_event(dg.AssetMaterialization(tenant_schema.key, partition=key))


def _fingerprint(drifts: Sequence[Drift]) -> str:
    text = "\n".join(f"{drift.kind}:{drift.customer_id}" for drift in drifts)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _table(repairs: Sequence[Repair]) -> str:
    rows = [
        f"| {repair.drift.customer_id} | {repair.drift.kind} | {repair.drift.detail} | {repair.outcome} |"
        for repair in repairs[:ROWS_SHOWN]
    ]
    more = [f"\n… and {len(repairs) - ROWS_SHOWN} more"] if len(repairs) > ROWS_SHOWN else []
    return "\n".join(["| customer | found | detail | outcome |", "|---|---|---|---|", *rows, *more])
