"""The registry of daemons: each one stated once. Command line, supervisor, health, documentation and deploy/ follow it.

Their order is the order of their start, and of their metrics' ports: a new one goes behind the last that `up` starts.
The code that runs a daemon is named, not imported: whoever runs it imports it. How to add one: docs/how_to.md.
"""

from collections.abc import Iterator
from typing import Final

from clientmgr.base.database import Role
from clientmgr.contracts import topics
from clientmgr.contracts.daemon_entry import (
    DaemonEntry,
    Deployment,
    Listening,
    Option,
    Process,
    StreamGroup,
    Subscription,
)

SHARED_SETTINGS: Final = (
    "REDIS_URL",
    "BROKER",
    "DATA_DIR",
    "METRICS_PORT",
    "METRICS_HOST",
    "METRICS_TOKEN",
    "SHUTDOWN_TIMEOUT_S",
    "LOG_LEVEL",
    "LOG_FORMAT",
)
"""What every daemon goes by, besides the logins of its roles."""

_TO_PUBSUB = (
    "PUBSUB_EMULATOR_HOST",
    "PUBSUB_GATEWAY_ADDRESS",
    "PUBSUB_TOKEN_FILE",
    "PUBSUB_TLS_CA",
    "PUBSUB_TLS_CERTIFICATE",
    "PUBSUB_TLS_KEY",
)
TRANSPORT_SETTINGS: Final = (
    "BROKER_TOTAL_PARTITIONS",
    "BROKER_BATCH_SIZE",
    "BROKER_MAX_MESSAGE_BYTES",
    "BROKER_PUBLISH_TIMEOUT_MS",
    "BROKER_LEASE_S",
    "BROKER_RETENTION_HOURS",
    "PUBSUB_PROJECT",
    *_TO_PUBSUB,
    "PUBSUB_CREATE_MISSING",
    "PUBSUB_ACK_DEADLINE_S",
    "PUBSUB_MAX_OUTSTANDING_MESSAGES",
    "PUBSUB_MAX_OUTSTANDING_BYTES",
    "PUBSUB_DEAD_LETTER_TOPIC",
    "PUBSUB_MAX_DELIVERY_ATTEMPTS",
)
"""What every daemon that has subscriptions goes by, besides: the transport that BROKER chooses reads them."""

_ON_MESSAGES = ("BROKER_MAX_ATTEMPTS", "BROKER_WAIT_PERIOD_MS")
_ON_TENANTS = ("WRITER_LOCK_TIMEOUT_MS", "UNKNOWN_TENANT_GRACE_S")
_ON_EVENTS = ("WRITER_BATCH_SIZE", "AUDIT_HASH_KEY", *_ON_TENANTS)
_ON_STREAM = ("REDIS_TELEMETRY_STREAM", "INSTANCE_ID", "LIVE_MAX_RECORD_BYTES")
_ON_DYNAMODB = (
    "LEGACY_STORE",
    "DYNAMODB_ENDPOINT",
    "DYNAMODB_DEVICES_TABLE",
    "DYNAMODB_CONCURRENCY",
    "DYNAMODB_TIMEOUT_MS",
    "DYNAMODB_PATIENCE_MS",
)
_BROADCASTING = (
    "LIVE_WS_HOST",
    "LIVE_WS_PORT",
    "LIVE_AUTH",
    "LIVE_TOKEN_KEY",
    "LIVE_ALLOWED_ORIGINS",
    "LIVE_URL",
    "LIVE_TRUSTED_PROXIES",
    "LIVE_BROADCAST_GROUP_PREFIX",
    "LIVE_BROADCAST_BATCH_SIZE",
    "LIVE_BROADCAST_BATCH_BLOCK_MS",
    "LIVE_BROADCAST_TICK_MS",
    "LIVE_IO_URING",
    "LIVE_DEVICE_EVENT_REFRESH_MS",
    "LIVE_WS_BACKPRESSURE_THRESHOLD_BYTES",
    "LIVE_WS_STALL_TIMEOUT_MS",
    "LIVE_WS_PING_INTERVAL_MS",
    "LIVE_WS_MAX_CONNECTIONS",
    "LIVE_WS_MAX_CONNECTIONS_PER_ADDRESS",
    "LIVE_WS_MAX_UNAUTHENTICATED",
    "LIVE_WS_MAX_UNAUTHENTICATED_PER_ADDRESS",
    "LIVE_WS_TOKEN_WITHIN_MS",
    "LIVE_WS_MAX_MESSAGES_PER_S",
    "LIVE_WS_MESSAGE_BURST",
    "LIVE_WS_MAX_SUBSCRIPTIONS",
    "LIVE_WS_MAX_FRAME_BYTES",
    "LIVE_HISTORY_S",
    "LIVE_HISTORY_BYTES",
    "LIVE_TILES_URL",
    "LIVE_TILES_ATTRIBUTION",
    "LIVE_TOPICS_WARNING",
    "DASHBOARD_URL",
    "DASHBOARD_HOST",
    "DASHBOARD_PORT",
    "DASHBOARD_TLS_CERTIFICATE",
)
_WRITING_POSITIONS = (
    "TELEMETRY_BATCH_SIZE",
    "TELEMETRY_CLAIM_IDLE_MS",
    "TELEMETRY_STREAM_KEEP_S",
    "BROKER_MAX_ATTEMPTS",
)

_BROKER_METRICS = "clientmgr.broker.message_metrics"
_CONSUMING = tuple(
    f"{_BROKER_METRICS}:{name}"
    for name in (
        "CONSUMED",
        "RETRIED",
        "PUT_OFF",
        "DEAD",
        "ERASED_PASSED",
        "BATCH_FAILURES",
        "BATCH_MESSAGES",
        "HANDLING_SECONDS",
    )
)
_PUBLISHING = (f"{_BROKER_METRICS}:PUBLISHED",)
_SUBSCRIPTIONS = tuple(
    f"{_BROKER_METRICS}:{name}" for name in ("LAG_MESSAGES", "LAG_SECONDS", "WAITING_RETRIES", "DEAD_LETTERS", "PAUSED")
)
_BROADCAST_METRICS = "streaming.live.broadcast.broadcast_metrics"
_TELEMETRY_METRICS = "streaming.live.telemetry.telemetry_metrics"

BURST: Final = Option(
    "burst", ("--burst",), "Stop, with exit code 0, when there is nothing left to read.", default=False
)

DURABLE_GROUP: Final = "processor"
"""The consumer group of the writers of positions."""
_WEBSOCKET = Listening("LIVE_WS_HOST", "LIVE_WS_PORT", "websocket", health_path="/healthz")
_WRITERS_GROUP = StreamGroup("REDIS_TELEMETRY_STREAM", DURABLE_GROUP)
_OWN_GROUP = StreamGroup("REDIS_TELEMETRY_STREAM")

WORKERS: Final = "workers"
"""The process that these share in `up`: they log in as the writer, and nobody can connect to them."""

_BUSY = "250m", "256Mi", "1Gi"
"""CPU, memory and the most memory of those that the hot paths run through."""


def _on_topics(*names: str) -> tuple[Subscription, ...]:
    return tuple(Subscription(name) for name in names)


def device_mapper_process(of: topics.DeviceMapperTopics) -> Process:
    """The device mapper of one type of traffic and one delivery group."""
    return Process(
        f"device-mapper-{of.sending_type}",
        ("run", "device-mapper", "--type", of.sending_type),
        reads=(Subscription(of.input, of.subscription),),
        publishes=(*of.outputs.values(), topics.NOT_SENT, topics.DEVICE_MAPPER_ERRORS),
        spelled_out=("--dg", of.delivery_group),
    )


ALL: tuple[DaemonEntry, ...] = (
    DaemonEntry(
        "pubsub-gateway",
        "Google's Pub/Sub protocol on our log; retention; erasure; the metrics of the whole",
        modules=("clientmgr.broker.gateway.server", "clientmgr.operations.maintenance"),
        usage="clientmgr pubsub-gateway",
        # Whoever starts it says where it listens: a line of its own would be a stray one.
        arguments=("pubsub-gateway", "--quiet"),
        reads_besides="what its clients subscribe to",
        publishes_besides="what its clients publish",
        roles=(Role.WRITER, Role.READER),
        settings=(
            "PUBSUB_GATEWAY_HOST",
            "PUBSUB_GATEWAY_PORT",
            "PUBSUB_GATEWAY_IDENTITIES",
            "PUBSUB_GATEWAY_TLS_CERTIFICATE",
            "PUBSUB_GATEWAY_TLS_KEY",
            "PUBSUB_GATEWAY_CLIENT_CA",
            "PUBSUB_GATEWAY_TLS_BY_PROXY",
            "PUBSUB_GATEWAY_MAX_BYTES",
            "PUBSUB_GATEWAY_MAX_CLIENT_BYTES",
            "PUBSUB_GATEWAY_MAX_CONNECTIONS",
            "PUBSUB_GATEWAY_MAX_CONNECTIONS_PER_ADDRESS",
            "PUBSUB_GATEWAY_MAX_TOPICS",
            "PUBSUB_GATEWAY_MAX_SUBSCRIPTIONS",
            "PUBSUB_PROJECT",
            "BROKER_RETENTION_HOURS",
            "BROKER_TOTAL_PARTITIONS",
            "BROKER_PUBLISH_TIMEOUT_MS",
            "BROKER_WAIT_PERIOD_MS",
            "SYNC_TOLERANCE",
            "AUDIT_HASH_KEY",
            "ERASURE_HOURS",
            "ERASURE_SWEEP_MINUTES",
            "TOMBSTONE_DAYS",
            "PUSH_TOKEN_VERDICT_DAYS",
            "AUDIT_ANCHORS",
            "AUDIT_ANCHOR_MINUTES",
        ),
        metrics=(
            *_PUBLISHING,
            *_SUBSCRIPTIONS,
            "clientmgr.broker.gateway.front",
            "clientmgr.operations.system_metrics",
        ),
        listens=Listening("PUBSUB_GATEWAY_HOST", "PUBSUB_GATEWAY_PORT", "grpc"),
        deployment=Deployment(
            2,
            "It also sees to retention, erasure and the metrics of the whole: keep one, even if nobody speaks Pub/Sub.",
            memory_limit="1Gi",
        ),
    ),
    DaemonEntry(
        "writer",
        "device events into tenants' tables",
        "Write device events (client-manager.writer) to the tenants' tables.",
        "streaming.writer:DAEMON.work",
        options=(BURST,),
        reads=_on_topics(topics.WRITER),
        writes=("devices",),
        publishes=(topics.REPUBLISHER, topics.WRITER_ERRORS),
        roles=(Role.WRITER,),
        shares=WORKERS,
        settings=(*_ON_EVENTS, "WRITER_LARGEST_BATCH_SIZE", "WRITER_CONCURRENCY", *_ON_MESSAGES),
        metrics=(*_CONSUMING, *_PUBLISHING),
        judged_by="unread messages",
        deployment=Deployment(
            2, "Scale it with its lag: up to BROKER_TOTAL_PARTITIONS (16) replicas have something to do.", *_BUSY
        ),
    ),
    DaemonEntry(
        "republisher",
        "tries again what the writer could not write",
        "Try again what the writer could not write (client-manager.republisher), at most five times.",
        "streaming.republisher:DAEMON.work",
        options=(BURST,),
        reads=_on_topics(topics.REPUBLISHER),
        writes=("devices",),
        publishes=(topics.REPUBLISHER, topics.WRITER_ERRORS),
        roles=(Role.WRITER,),
        shares=WORKERS,
        settings=(*_ON_EVENTS, *_ON_MESSAGES),
        metrics=(*_CONSUMING, *_PUBLISHING),
        judged_by="unread messages",
    ),
    DaemonEntry(
        "push-token-status",
        "the providers' verdicts on push tokens",
        "Apply the providers' verdicts on push tokens.",
        "streaming.push_token_status:work",
        options=(
            Option("token_type", ("--type", "-t"), "Whose verdicts to read.", "both", ("push", "web", "both")),
            BURST,
        ),
        reads=_on_topics(topics.PUSH_TOKEN_STATUS, topics.WEB_PUSH_TOKEN_STATUS),
        writes=("devices",),
        roles=(Role.WRITER,),
        shares=WORKERS,
        settings=(
            "PUSH_TOKEN_STATUS_BATCH_SIZE",
            "PUSH_TOKEN_STATUS_WAIT_MS",
            "AUDIT_HASH_KEY",
            *_ON_TENANTS,
            *_ON_MESSAGES,
        ),
        metrics=_CONSUMING,
        judged_by="unread messages",
    ),
    DaemonEntry(
        "contact-deletion",
        "deletes the devices of deleted contacts",
        "Delete the devices of deleted contacts (client-manager.contact-deletion).",
        "streaming.contact_deletion:DAEMON.work",
        options=(BURST,),
        reads=_on_topics(topics.CONTACT_DELETION),
        writes=("devices",),
        publishes=(topics.CONTACT_DELETION_ERRORS,),
        roles=(Role.WRITER,),
        shares=WORKERS,
        settings=("CONTACT_DELETION_BATCH_SIZE", "AUDIT_HASH_KEY", *_ON_TENANTS, *_ON_MESSAGES),
        metrics=(*_CONSUMING, *_PUBLISHING),
        judged_by="unread messages",
    ),
    DaemonEntry(
        "telemetry-writer",
        "positions from the Redis stream into `live.positions`",
        "Write every position of the telemetry stream to live.positions.",
        "streaming.live.telemetry.writer:telemetry_writer",
        options=(BURST,),
        streams=(_WRITERS_GROUP,),
        writes=("live_positions",),
        roles=(Role.WRITER,),
        shares=WORKERS,
        settings=(*_ON_STREAM, *_WRITING_POSITIONS, "TELEMETRY_RETENTION_DAYS"),
        metrics=(_TELEMETRY_METRICS,),
        judged_by="unread positions",
        deployment=Deployment(
            2, "Replicas share the stream. INSTANCE_ID stays unset: each start has a name of its own."
        ),
    ),
    DaemonEntry(
        "broadcast",
        "positions from the Redis stream to WebSocket subscribers, and the page `/live`",
        "Send positions from the telemetry stream to WebSocket subscribers; serve /live and /healthz.",
        "streaming.live.broadcast.server:broadcast",
        streams=(_OWN_GROUP,),
        roles=(Role.READER,),
        settings=(*_ON_STREAM, *_BROADCASTING, "TELEMETRY_RETENTION_DAYS"),
        metrics=(_BROADCAST_METRICS,),
        listens=_WEBSOCKET,
        judged_by="its answer",
        deployment=Deployment(
            2,
            "Every replica sees every record; a viewer may connect to any. INSTANCE_ID stays unset.",
            cpu="250m",
            memory_limit="1Gi",
        ),
    ),
    DaemonEntry(
        "device-mapper",
        "a message for contacts becomes messages for devices",
        "Map personalised messages (sending-<batch|tx>-devicemapper-<dg>) to a message for each device.",
        "streaming.device_mapper.mapper:work",
        options=(
            Option("sending_type", ("--type", "-t"), "Which traffic to map.", choices=("batch", "tx")),
            Option("delivery_group", ("--dg",), "Of which delivery group.", "dg00"),
            BURST,
        ),
        usage="clientmgr run device-mapper --type batch|tx --dg dg00",
        # A process each: a transactional message never waits for a batch.
        several=(
            device_mapper_process(topics.DeviceMapperTopics("batch", "dg00")),
            device_mapper_process(topics.DeviceMapperTopics("tx", "dg00")),
        ),
        looks_up=("devices",),
        roles=(Role.WRITER,),
        shares=WORKERS,
        settings=(
            "CLIENT_FETCHER_FALLBACK_ENABLED",
            "FLIPPER_REFRESH_MS",
            "AUDIT_HASH_KEY",
            "DEVICE_MAPPER_BATCHES",
            "DEVICE_MAPPER_MESSAGES",
            "DEVICE_MAPPER_POSTGRES_BATCHES",
            "DEVICE_MAPPER_POSTGRES_MESSAGES",
            *_ON_DYNAMODB,
            *_ON_TENANTS,
            *_ON_MESSAGES,
        ),
        metrics=(*_CONSUMING, *_PUBLISHING, "clientmgr.sending.metrics"),
        judged_by="unread messages",
        deployment=Deployment(
            2,
            "One a delivery group and type of traffic: copy it for another group. Replicas share the partitions.",
            *_BUSY,
        ),
    ),
    DaemonEntry(
        "dashboard",
        "pages and an API for operators: is all well, and what to do about it",
        "Serve the dashboard: what operators look at, and what they do about it. Loopback only unless users are set.",
        "clientmgr_dashboard.server:dashboard_work",
        reads_besides="the database; `/healthz` and metrics of the broadcast for its map",
        publishes_besides="dead letters and error topics' messages that an operator replays, to where they came from; "
        f"deletions of contacts, to `{topics.CONTACT_DELETION}`; activations and deletions of tenants, to "
        f"`{topics.ACTIVATE_CUSTOMER}` and `{topics.ACCOUNT_DELETION}`",
        roles=(Role.READER, Role.WRITER),
        settings=(
            "DASHBOARD_HOST",
            "DASHBOARD_PORT",
            "DASHBOARD_USERS_FILE",
            "DASHBOARD_SESSION_KEY",
            "DASHBOARD_SESSION_HOURS",
            "DASHBOARD_MAX_CONNECTIONS",
            "DASHBOARD_MAX_CONNECTIONS_PER_ADDRESS",
            "DASHBOARD_TRUSTED_PROXIES",
            "DASHBOARD_TLS_CERTIFICATE",
            "DASHBOARD_TLS_KEY",
            "DASHBOARD_URL",
            "DASHBOARD_COOKIE_DOMAIN",
            "INTAKE_SIGNING_KEY",
            "LIVE_URL",
            "LIVE_WS_HOST",
            "LIVE_WS_PORT",
            "LIVE_AUTH",
            "LIVE_TOKEN_KEY",
            "LIVE_BROADCAST_GROUP_PREFIX",
            "DAGSTER_URL",
            "DAGSTER_HOST",
            "DAGSTER_PORT",
            "CITUS",
            "AUDIT_HASH_KEY",
            "AUDIT_ANCHORS",
            "DAEMON_LATE_AFTER_S",
            "SYNC_TOLERANCE",
            "MIGRATION_CHECK_HOURS",
            "MIGRATION_MAX_FALLBACK_SHARE",
            "REDIS_TELEMETRY_STREAM",
            "ORPHAN_EXCLUDED_CUSTOMERS",
            *TRANSPORT_SETTINGS,
            "BROKER_MAX_ATTEMPTS",
            "BROKER_WAIT_PERIOD_MS",
            "DAGSTER_DATABASE_URL",
            "SPARK_CONNECT_URL",
            "ERASURE_HOURS",
            "CLIENT_FETCHER_FALLBACK_ENABLED",
            *_ON_DYNAMODB,
        ),
        metrics=("clientmgr_dashboard.metrics",),
        listens=Listening("DASHBOARD_HOST", "DASHBOARD_PORT", "http"),
        deployment=Deployment(
            1,
            "Put an ingress with TLS in front: the session's cookie is for HTTPS. Users are lines of "
            "`clientmgr dashboard user`.",
            cpu="250m",
            memory_limit="1Gi",
            is_spread=True,
        ),
    ),
    DaemonEntry(
        "intake",
        "devices' events by HTTP, each of them the writer's message",
        "Take devices' events by HTTP and publish them to client-manager.writer; 202 means that they are in the log.",
        "streaming.intake.server:intake",
        reads_besides="HTTP requests of apps, web pages and back ends",
        publishes=(topics.WRITER,),
        roles=(Role.WRITER, Role.READER),
        settings=(
            "INTAKE_HOST",
            "INTAKE_PORT",
            "INTAKE_TLS_CERTIFICATE",
            "INTAKE_TLS_KEY",
            "INTAKE_TLS_BY_PROXY",
            "INTAKE_TRUSTED_PROXIES",
            "INTAKE_SIGNING_KEY",
            "INTAKE_MAX_CONNECTIONS",
            "INTAKE_MAX_CONNECTIONS_PER_ADDRESS",
            "INTAKE_MAX_BODY_BYTES",
            "INTAKE_MAX_EVENTS",
            "INTAKE_KEY_EVENTS_PER_S",
            "INTAKE_ADDRESS_EVENTS_PER_S",
            "INTAKE_BURST_S",
            *TRANSPORT_SETTINGS,
            *_ON_MESSAGES,
        ),
        metrics=(*_PUBLISHING, "streaming.intake.intake_metrics"),
        listens=Listening("INTAKE_HOST", "INTAKE_PORT", "intake", health_path="/healthz"),
        judged_by="its answer",
        deployment=Deployment(
            2,
            "Put an ingress with TLS in front, and name it in INTAKE_TRUSTED_PROXIES. All replicas share one "
            "INTAKE_SIGNING_KEY.",
            *_BUSY,
        ),
    ),
    DaemonEntry(
        "live",
        "broadcast and telemetry-writer in one process",
        "Run broadcast and telemetry-writer in one process, stopped in that order.",
        "streaming.live.combined:live",
        streams=(_WRITERS_GROUP, _OWN_GROUP),
        starts="by hand",
        roles=(Role.READER, Role.WRITER),
        settings=(*_ON_STREAM, *_BROADCASTING, *_WRITING_POSITIONS, "TELEMETRY_RETENTION_DAYS"),
        metrics=(_BROADCAST_METRICS, _TELEMETRY_METRICS),
        listens=_WEBSOCKET,
    ),
    DaemonEntry(
        "bridge",
        "Google Pub/Sub subscriptions copied into the log",
        modules=("clientmgr.broker.bridge",),
        usage="clientmgr bridge SUBSCRIPTION[=TOPIC]…",
        arguments=("bridge", topics.ACTIVATE_CUSTOMER, topics.ACCOUNT_DELETION),
        reads_besides="Google Pub/Sub subscriptions, as named",
        publishes_besides="the log's topics of the same names",
        starts="where needed",
        roles=(Role.WRITER,),
        settings=(
            "PUBSUB_PROJECT",
            *_TO_PUBSUB,
            "BROKER_TOTAL_PARTITIONS",
            "BROKER_PUBLISH_TIMEOUT_MS",
            "BROKER_RETENTION_HOURS",
        ),
        metrics=_PUBLISHING,
        deployment=Deployment(
            note="Only where customers publish to Google Pub/Sub: its arguments say which subscriptions are copied."
        ),
    ),
)

DAGSTER: Final = (
    DaemonEntry(
        "dagster-code-server",
        "our definitions: it evaluates sensors and schedules, and starts the runs",
        arguments=("dagster", "code-server"),
        roles=(Role.DDL, Role.WRITER, Role.READER),
        settings=(
            "DAGSTER_DATABASE_URL",
            "AUDIT_HASH_KEY",
            "AUDIT_ANCHORS",
            "ALERT_WEBHOOK_URL",
            "SPARK_CONF",
            "SPARK_CONNECT_TOKEN",
            "BIGQUERY_PROJECT",
            "LEGACY_STORE",
            "DYNAMODB_ENDPOINT",
            "DAGSTER_CODE_SERVER_SOCKET",
            *TRANSPORT_SETTINGS,
        ),
    ),
    DaemonEntry(
        "dagster-daemon",
        "decides when a sensor, a schedule or a run of the queue is due",
        arguments=("dagster", "daemon"),
        # Our own code is the code server's: this one knows Dagster's tables alone.
        settings=("DAGSTER_DATABASE_URL", "DAGSTER_CODE_SERVER_SOCKET"),
    ),
    DaemonEntry(
        "dagster-webserver",
        "Dagster's UI, with the dashboard's users and sessions",
        arguments=("dagster", "webserver"),
        # Runs are the code server's: this one queues them, audits who asked, and knows who has signed in.
        roles=(Role.WRITER, Role.READER),
        settings=(
            "DAGSTER_HOST",
            "DAGSTER_PORT",
            "DAGSTER_URL",
            "DAGSTER_DATABASE_URL",
            "DAGSTER_CODE_SERVER_SOCKET",
            "DASHBOARD_USERS_FILE",
            "DASHBOARD_SESSION_KEY",
            "DASHBOARD_SESSION_HOURS",
            "DASHBOARD_TLS_CERTIFICATE",
            "DASHBOARD_TLS_KEY",
            "DASHBOARD_URL",
            "DASHBOARD_COOKIE_DOMAIN",
            "DASHBOARD_MAX_CONNECTIONS",
            "DASHBOARD_MAX_CONNECTIONS_PER_ADDRESS",
            "DASHBOARD_TRUSTED_PROXIES",
            "DASHBOARD_HOST",
            "DASHBOARD_PORT",
            "AUDIT_HASH_KEY",
        ),
        listens=Listening("DAGSTER_HOST", "DAGSTER_PORT", "ui", health_path="/server_info"),
        judged_by="its answer",
    ),
)
"""Dagster's programs, which run beside ours, once each: docs/dagster.md. They start first. Of the code server's
settings these are the ones that open something; the others are for all.
"""


def started() -> Iterator[Process]:
    """The processes of ours that make up the system, in the order of their start."""
    for one in ALL:
        if one.starts == "always":
            yield from one.processes


def entry(name: str) -> DaemonEntry:
    """A daemon by its name."""
    for one in ALL:
        if one.name == name:
            return one
    raise LookupError(f"{name}: not in the registry of daemons, clientmgr/contracts/daemons.py")


def process(name: str) -> Process:
    """A process by its name."""
    for daemon in ALL:
        for one in daemon.processes:
            if one.name == name:
                return one
    raise LookupError(f"{name}: not in the registry of daemons, clientmgr/contracts/daemons.py")


def entry_of_process(name: str) -> DaemonEntry:
    """The daemon that a process belongs to."""
    wanted = process(name)
    return next(one for one in ALL if wanted in one.processes)
