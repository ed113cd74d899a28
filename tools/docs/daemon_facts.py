"""What each daemon is, in facts: command, what it reads and publishes, its settings and metrics. One table of them all.

What the code can tell is asked of it; the rest is stated here and held against it by tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings
from clientmgr.contracts.topics import DeviceMapperTopics
from clientmgr.live.redis_stream import DURABLE_GROUP
from clientmgr.tenants.directory import TenantDirectory
from streaming import contact_deletion, push_token_status, republisher, writer
from streaming.device_mapper import mapper
from streaming.runtime.daemon import Daemon, Services, Source
from tools.docs.metric_names import (
    BROADCASTING,
    CONSUMING,
    DASHBOARD,
    DEVICE_MAPPING,
    PUBLISHING,
    STANDING,
    SUBSCRIPTIONS,
    TELEMETRY,
    Collector,
)

SHARED_SETTINGS: Final = (
    "DATABASE_URL",
    "DATABASE_WRITER_URL",
    "DATABASE_READER_URL",
    "REDIS_URL",
    "BROKER",
    "METRICS_PORT",
    "METRICS_HOST",
    "SHUTDOWN_TIMEOUT_S",
    "LOG_LEVEL",
    "LOG_FORMAT",
)
"""What every daemon goes by."""

ON_MESSAGES: Final = ("BROKER_MAX_ATTEMPTS", "BROKER_WAIT_PERIOD_MS")
STREAM: Final = ("REDIS_TELEMETRY_STREAM", "INSTANCE_ID")


@dataclass(frozen=True)
class DaemonFacts:
    """A daemon and its page, docs/daemons/<name>.md."""

    name: str
    command: str
    does: str
    """In the index, in a few words."""
    settings: tuple[str, ...]
    metrics: Sequence[Collector]
    on_loop: tuple[Daemon, ...] = field(default=())
    """Those that run on the loop of streaming/runtime/daemon.py; it knows what they read and publish."""
    reads: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()
    port_setting: str = "METRICS_PORT"
    """Where /metrics and /healthz are."""

    def sources(self) -> list[Source]:
        return [source for daemon in self.on_loop for source in _sources(daemon)]

    def reads_from(self) -> list[str]:
        return [*self.reads, *(general(source.topic) for source in self.sources())]

    def subscriptions(self) -> list[str]:
        return [general(source.subscription_name) for source in self.sources()]

    def publishes_to(self) -> list[str]:
        topics = [general(topic) for daemon in self.on_loop for topic in daemon.publishes_to]
        return list(dict.fromkeys([*self.publishes, *topics]))


def general(topic: str) -> str:
    """A device mapper's topic without its type of traffic and delivery group."""
    return topic.replace("sending-batch-", "sending-<batch|tx>-").replace("-dg00", "-<dg>")


def _sources(daemon: Daemon) -> Sequence[Source]:
    """What it reads, asked of itself. Nothing is connected to anything on the way."""
    settings = load_settings(audit_hash_key="for the documentation")
    services = Services(settings, Database("postgresql://"), TenantDirectory(settings))
    with services.closing:
        return daemon.sources(services)


WRITING = ("WRITER_BATCH_SIZE", "WRITER_LOCK_TIMEOUT_MS")

ALL: Final = (
    DaemonFacts(
        "writer",
        "clientmgr run writer",
        "device events into tenants' tables",
        (*WRITING, "WRITER_CONCURRENCY", *ON_MESSAGES),
        [*CONSUMING, *PUBLISHING],
        (writer.DAEMON,),
    ),
    DaemonFacts(
        "republisher",
        "clientmgr run republisher",
        "tries again what the writer could not write",
        (*WRITING, *ON_MESSAGES),
        [*CONSUMING, *PUBLISHING],
        (republisher.DAEMON,),
    ),
    DaemonFacts(
        "push-token-status",
        "clientmgr run push-token-status",
        "the providers' verdicts on push tokens",
        ("PUSH_TOKEN_STATUS_BATCH_SIZE", "PUSH_TOKEN_STATUS_WAIT_MS", "WRITER_LOCK_TIMEOUT_MS", *ON_MESSAGES),
        CONSUMING,
        (push_token_status.daemon(push_token_status.TokenType.BOTH),),
    ),
    DaemonFacts(
        "contact-deletion",
        "clientmgr run contact-deletion",
        "deletes the devices of deleted contacts",
        ("CONTACT_DELETION_BATCH_SIZE", "AUDIT_HASH_KEY", "WRITER_LOCK_TIMEOUT_MS", *ON_MESSAGES),
        [*CONSUMING, *PUBLISHING],
        (contact_deletion.DAEMON,),
    ),
    DaemonFacts(
        "device-mapper",
        "clientmgr run device-mapper --type batch|tx --dg dg00",
        "a message for contacts becomes messages for devices",
        (
            "CLIENT_FETCHER_FALLBACK_ENABLED",
            "FLIPPER_REFRESH_MS",
            "DEVICE_MAPPER_BATCHES",
            "DEVICE_MAPPER_MESSAGES",
            "DEVICE_MAPPER_POSTGRES_BATCHES",
            "DEVICE_MAPPER_POSTGRES_MESSAGES",
            "DYNAMODB_ENDPOINT",
            "DYNAMODB_DEVICES_TABLE",
            "DYNAMODB_CONCURRENCY",
            "DYNAMODB_TIMEOUT_MS",
            *ON_MESSAGES,
        ),
        [*CONSUMING, *PUBLISHING, *DEVICE_MAPPING],
        (mapper.daemon(DeviceMapperTopics("batch", "dg00")),),
    ),
    DaemonFacts(
        "telemetry-writer",
        "clientmgr run telemetry-writer",
        "positions from the Redis stream into `live.positions`",
        (
            *STREAM,
            "TELEMETRY_BATCH_SIZE",
            "TELEMETRY_CLAIM_IDLE_MS",
            "TELEMETRY_RETENTION_DAYS",
            "TELEMETRY_STREAM_KEEP_S",
            "BROKER_MAX_ATTEMPTS",
        ),
        TELEMETRY,
        reads=(f"Redis stream `telemetry:teltonika`, group `{DURABLE_GROUP}`",),
    ),
    DaemonFacts(
        "broadcast",
        "clientmgr run broadcast",
        "positions from the Redis stream to WebSocket subscribers, and the page `/live`",
        (
            *STREAM,
            "LIVE_WS_HOST",
            "LIVE_WS_PORT",
            "LIVE_AUTH",
            "LIVE_TOKEN_KEY",
            "LIVE_ALLOWED_ORIGINS",
            "LIVE_BROADCAST_GROUP_PREFIX",
            "LIVE_BROADCAST_BATCH_SIZE",
            "LIVE_BROADCAST_BATCH_BLOCK_MS",
            "LIVE_BROADCAST_TICK_MS",
            "LIVE_DEVICE_EVENT_REFRESH_MS",
            "LIVE_WS_BACKPRESSURE_THRESHOLD_BYTES",
            "LIVE_WS_STALL_TIMEOUT_MS",
            "LIVE_WS_PING_INTERVAL_MS",
            "LIVE_WS_MAX_CONNECTIONS",
            "LIVE_WS_MAX_SUBSCRIPTIONS",
            "LIVE_WS_MAX_FRAME_BYTES",
            "LIVE_TOPICS_WARNING",
        ),
        BROADCASTING,
        reads=("Redis stream `telemetry:teltonika`, a group for each instance",),
        port_setting="LIVE_WS_PORT",
    ),
    DaemonFacts(
        "live",
        "clientmgr run live",
        "broadcast and telemetry-writer in one process",
        (*STREAM, "LIVE_WS_HOST", "LIVE_WS_PORT", "LIVE_AUTH", "TELEMETRY_BATCH_SIZE", "TELEMETRY_RETENTION_DAYS"),
        [*BROADCASTING, *TELEMETRY],
        reads=("Redis stream `telemetry:teltonika`, as both",),
        port_setting="LIVE_WS_PORT",
    ),
    DaemonFacts(
        "dashboard",
        "clientmgr run dashboard",
        "pages and an API for operators: is all well, and what to do about it",
        (
            "DASHBOARD_HOST",
            "DASHBOARD_PORT",
            "DASHBOARD_USERS_FILE",
            "DASHBOARD_SESSION_KEY",
            "DASHBOARD_SESSION_HOURS",
            "DASHBOARD_TLS_CERTIFICATE",
            "DASHBOARD_TLS_KEY",
            "DASHBOARD_URL",
            "LIVE_URL",
            "DAGSTER_URL",
            "AUDIT_HASH_KEY",
        ),
        DASHBOARD,
        reads=("the database; `/healthz` and metrics of the broadcast for its map",),
        publishes=("dead letters and error topics' messages that an operator replays, to where they came from",),
    ),
    DaemonFacts(
        "pubsub-gateway",
        "clientmgr pubsub-gateway",
        "Google's Pub/Sub protocol on our log; retention; the metrics of the whole",
        (
            "PUBSUB_GATEWAY_HOST",
            "PUBSUB_GATEWAY_PORT",
            "PUBSUB_PROJECT",
            "BROKER_RETENTION_HOURS",
            "BROKER_TOTAL_PARTITIONS",
            "BROKER_PUBLISH_TIMEOUT_MS",
            "SYNC_TOLERANCE",
        ),
        [*PUBLISHING, *SUBSCRIPTIONS, *STANDING],
        reads=("what its clients subscribe to",),
        publishes=("what its clients publish",),
    ),
    DaemonFacts(
        "bridge",
        "clientmgr bridge SUBSCRIPTION[=TOPIC]…",
        "Google Pub/Sub subscriptions copied into the log",
        ("PUBSUB_PROJECT", "PUBSUB_EMULATOR_HOST", "BROKER_TOTAL_PARTITIONS", "BROKER_PUBLISH_TIMEOUT_MS"),
        PUBLISHING,
        reads=("Google Pub/Sub subscriptions, as named",),
        publishes=("the log's topics of the same names",),
    ),
)


def facts_of_program(program: str) -> DaemonFacts:
    """Of what `up` calls `program`: the device mappers have a name each and one page."""
    for facts in ALL:
        if program == facts.name or program.startswith(f"{facts.name}-"):
            return facts
    raise LookupError(f"{program}: no line in tools/docs/daemon_facts.py, and so no page and no metrics")
