"""`audit_verification`: proves every night that nobody changed the audit log, or reports what is wrong."""

from dataclasses import asdict

import dagster as dg

from clientmgr.audit.anchoring import anchor_log
from clientmgr.audit.log import AuditLogger
from clientmgr.audit.places.configured import anchor_places
from clientmgr.audit.verification import record, verify_log
from clientmgr.base.database import Role
from clientmgr_dagster.automation import SCHEDULES
from clientmgr_dagster.metadata import table
from clientmgr_dagster.partitions import RETRIED
from clientmgr_dagster.policies import RETRY_POLICY
from clientmgr_dagster.resources import TenantsResource


@dg.asset(
    deps=["audit_log"],
    group_name="operations",
    kinds={"postgres"},
    metadata={"dagster/table_name": "clientmgr.audit_verifications"},
    retry_policy=RETRY_POLICY,
    check_specs=[
        dg.AssetCheckSpec(
            "audit_log_intact", asset="audit_verification", description="Nobody changed or removed a row of any chain."
        )
    ],
    description="The whole audit log, verified: what `clientmgr audit verify` reports, kept for the metrics.",
)
def audit_verification(context: dg.AssetExecutionContext, tenants: TenantsResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """A damaged log fails the check, not the run: the verification itself succeeded. An intact one is anchored."""
    audit, places = AuditLogger.from_settings(tenants.settings), anchor_places(tenants.settings)
    verdict = verify_log(tenants.database, audit, places)
    if verdict.state == "intact":
        anchor_log(tenants.database, audit, places, actor="audit_verification")
    with tenants.database.connect(Role.WRITER) as connection:
        record(connection, verdict)
    for finding in verdict.first:
        context.log.error(f"audit log of customer {finding.customer_id}, row {finding.seq}: {finding.problem}")
    shown = table([{**asdict(finding), "kind": finding.kind.value} for finding in verdict.first])
    return dg.MaterializeResult(
        metadata={
            "findings": verdict.findings,
            "state": verdict.state,
            "rows": verdict.examined.rows,
            "chains": verdict.examined.chains,
            "anchors": verdict.examined.anchors,
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="audit_log_intact",
                passed=not verdict.findings,
                metadata={"count": verdict.findings, "state": verdict.state, "findings": shown},
            )
        ],
    )


audit_verification_job = dg.define_asset_job(
    "audit_verification_job",
    selection=dg.AssetSelection.assets(audit_verification),
    description="Verifies the whole audit log, and anchors it if it is intact.",
)

nightly_audit_verification = dg.ScheduleDefinition(
    name="nightly_audit_verification",
    job=audit_verification_job,
    cron_schedule="15 5 * * *",
    tags=RETRIED,
    execution_timezone="UTC",
    default_status=SCHEDULES,
    description="Every night at 05:15 UTC.",
)
