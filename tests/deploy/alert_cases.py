"""For each alert of deploy/prometheus/alerts.yml: series that raise it, in promtool's notation, and what it then says.

`3x20` is 3, twenty-one times; `0+1x20` counts up by 1; `_x5` is nothing for six minutes. A sample a minute.
"""

from dataclasses import dataclass, field
from typing import Final

WRITER: Final = 'topic="client-manager.writer",subscription="client-manager.writer"'
TARGET: Final = 'job="client-manager",daemon="writer",instance="127.0.0.1:9101"'
TARGET_LABELS: Final = {"job": "client-manager", "daemon": "writer", "instance": "127.0.0.1:9101"}
WRITERS: Final = {"topic": "client-manager.writer", "subscription": "client-manager.writer"}
ERRORS: Final = 'clientmgr_messages_published_total{topic="client-manager.writer-errors",instance="a"}'


@dataclass(frozen=True)
class Case:
    """An alert that is raised."""

    series: dict[str, str]
    at: str
    """When it fires."""
    summary: str
    labels: dict[str, str] = field(default_factory=dict)
    """Besides its severity."""
    not_yet: str = "0m"
    """When it does not fire yet."""


CASES: Final[dict[str, tuple[Case, ...]]] = {
    "ClientManagerSubscriptionLate": (
        Case(
            {f"clientmgr_subscription_lag_seconds{{{WRITER}}}": "400x10"},
            "6m",
            "client-manager.writer is 6m 40s behind",
            WRITERS,
            "4m",
        ),
        # Paused for the first ten minutes.
        Case(
            {
                f"clientmgr_subscription_lag_seconds{{{WRITER}}}": "400x20",
                f"clientmgr_subscription_paused{{{WRITER}}}": "1x9 0x10",
            },
            "16m",
            "client-manager.writer is 6m 40s behind",
            WRITERS,
            "9m",
        ),
    ),
    "ClientManagerSubscriptionVeryLate": (
        Case(
            {f"clientmgr_subscription_lag_seconds{{{WRITER}}}": "3700x10"},
            "6m",
            "client-manager.writer is 1h 1m 40s behind",
            WRITERS,
            "4m",
        ),
        # Paused for the first ten minutes.
        Case(
            {
                f"clientmgr_subscription_lag_seconds{{{WRITER}}}": "3700x20",
                f"clientmgr_subscription_paused{{{WRITER}}}": "1x9 0x10",
            },
            "16m",
            "client-manager.writer is 1h 1m 40s behind",
            WRITERS,
            "9m",
        ),
    ),
    "ClientManagerSubscriptionPausedLong": (
        Case(
            {f"clientmgr_subscription_paused{{{WRITER}}}": "0x5 1x730"},
            "727m",
            "client-manager.writer has been paused for 12 hours",
            WRITERS,
            "725m",
        ),
    ),
    "ClientManagerLagNotTold": (
        Case({"up": "1x20"}, "11m", "nobody tells how far the subscriptions are behind", not_yet="9m"),
    ),
    "ClientManagerDeadLetters": (
        Case(
            {f"clientmgr_dead_letters{{{WRITER}}}": "0 3x5"},
            "2m",
            "3 dead letters of client-manager.writer wait for somebody",
            WRITERS,
        ),
    ),
    "ClientManagerErrorTopic": (
        Case(
            {ERRORS: "0x20 10x20"},
            "25m",
            "10 messages went to client-manager.writer-errors in 15 minutes",
            {"topic": "client-manager.writer-errors"},
            "19m",
        ),
    ),
    "ClientManagerBatchesFail": (
        Case(
            {f'clientmgr_batch_failures_total{{{WRITER},kind="transient"}}': "0+6x40"},
            "25m",
            "batches of client-manager.writer fail (transient)",
            {"subscription": "client-manager.writer", "kind": "transient"},
            "5m",
        ),
    ),
    "ClientManagerBatchesSlow": (
        Case(
            {
                f'clientmgr_batch_handling_seconds_bucket{{{WRITER},le="10"}}': "0x40",
                f'clientmgr_batch_handling_seconds_bucket{{{WRITER},le="30"}}': "0+5x40",
                f'clientmgr_batch_handling_seconds_bucket{{{WRITER},le="+Inf"}}': "0+5x40",
            },
            "25m",
            "a batch of client-manager.writer takes 29s",
            {"subscription": "client-manager.writer"},
            "5m",
        ),
    ),
    "ClientManagerDaemonDown": (
        Case({f"up{{{TARGET}}}": "0x10"}, "3m", "writer does not answer at 127.0.0.1:9101", TARGET_LABELS, "1m"),
    ),
    "ClientManagerDaemonRestarts": (
        Case(
            {f"process_start_time_seconds{{{TARGET}}}": "100x5 200x2 300x2 400x2 500x2"},
            "15m",
            "writer at 127.0.0.1:9101 starts again and again",
            TARGET_LABELS,
            "12m",
        ),
    ),
    "ClientManagerDiskAlmostFull": (
        Case(
            {
                'node_filesystem_avail_bytes{fstype="ext4",mountpoint="/",device="sda",instance="a"}': "5x20",
                'node_filesystem_size_bytes{fstype="ext4",mountpoint="/",device="sda",instance="a"}': "100x20",
            },
            "11m",
            "/ of a has 5% left",
            {"fstype": "ext4", "mountpoint": "/", "device": "sda", "instance": "a"},
            "9m",
        ),
    ),
    "ClientManagerAuditLogNotIntact": (
        Case({"clientmgr_audit_findings": "0 2x5"}, "2m", "The verification of the audit log has 2 findings"),
    ),
    "ClientManagerNightlyWorkStale": (
        Case(
            {'clientmgr_batch_work_done_timestamp_seconds{work="dashboard"}': "0x2400"},
            "2161m",
            "dashboard was last done 1d 12h 1m 0s ago for every tenant",
            {"work": "dashboard"},
            "2159m",
        ),
    ),
    "ClientManagerErasureLate": (
        Case(
            {"clientmgr_erasure_lag_seconds": "0 43260x5"},
            "2m",
            "what was deleted 12h 1m 0s ago may not be erased everywhere",
        ),
    ),
    "ClientManagerTenantStuck": (
        Case(
            {'clientmgr_tenants{status="deleting"}': "2x40", 'clientmgr_tenants{status="active"}': "9x40"},
            "31m",
            "2 tenants have been deleting for half an hour",
            {"status": "deleting"},
            "29m",
        ),
    ),
    "ClientManagerTenantsNotCounted": (
        Case({"clientmgr_tenants_not_counted": "4x70"}, "61m", "4 tenants could not be counted", not_yet="59m"),
    ),
    "ClientManagerTenantsOutOfSync": (
        Case(
            {"clientmgr_tenants_out_of_sync": "0 1x5"},
            "2m",
            "1 tenants differ from DynamoDB by more than SYNC_TOLERANCE",
        ),
    ),
    "ClientManagerContactDeletionsNotPublished": (
        # They wait for a moment each night: two hours of it are too much, and a moment after a start is not.
        Case(
            {"clientmgr_contact_deletions_waiting": "7x130"},
            "121m",
            "7 deleted contacts wait to be published",
            not_yet="119m",
        ),
    ),
    "ClientManagerContactDeletionsMissed": (
        Case(
            {"clientmgr_tenants_with_missed_deletions": "0 3x5"},
            "2m",
            "Deleted contacts of 3 tenants have had devices here for two nights",
        ),
    ),
    "ClientManagerPositionsLost": (
        Case(
            {"processor_telemetry_stream_lost_total": "_x20 12x5"},
            "22m",
            "12 positions were trimmed from the stream before they were durable",
            not_yet="19m",
        ),
    ),
    "ClientManagerPositionsLate": (
        Case(
            {"processor_telemetry_stream_lag": "200000x10"}, "6m", "200000 positions wait to be written", not_yet="4m"
        ),
    ),
    "ClientManagerPositionsRejected": (
        Case(
            {'processor_telemetry_rejected_total{instance_id="a"}': "0x20 1x20"},
            "22m",
            "1 positions were parked in live.rejected_records",
            not_yet="19m",
        ),
    ),
    "ClientManagerLiveLate": (
        Case(
            {
                'processor_live_broadcast_lag_ms_bucket{le="5000"}': "0x20",
                'processor_live_broadcast_lag_ms_bucket{le="15000"}': "0+5x20",
                'processor_live_broadcast_lag_ms_bucket{le="+Inf"}': "0+5x20",
            },
            "12m",
            "live positions are 14500 ms old when they are sent",
            not_yet="3m",
        ),
    ),
    "ClientManagerLiveMapOld": (
        Case(
            {'processor_live_device_event_refreshed_timestamp_seconds{instance="a",job="client-manager"}': "1x20"},
            "11m",
            "the map of devices to events of a is 10m 59s old",
            {"instance": "a", "job": "client-manager"},
            "9m",
        ),
    ),
}
