"""Every setting, once: its default, its environment name (the field's, in capitals) and a line of help.

Values come from the environment, then from `.env` in the working directory, then from the defaults here.
"""

import functools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableSettingError

from clientmgr.base.errors import SettingsError
from clientmgr.base.exposure import is_loopback
from clientmgr.base.hiding import display_value
from clientmgr.base.strong_keys import HOW_TO_MAKE_ONE, is_sample_password, weakness

Port = Annotated[int, Field(ge=0, le=65535)]


def _postgres_url(value: str) -> str:
    if value and not value.startswith(("postgresql://", "postgres://")):
        raise ValueError("a URL like postgresql://user:password@host:5432/database")
    return _without_sample_password(value)


def _redis_url(value: str) -> str:
    if value and not value.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("a URL like redis://host:6379/0")
    return _without_sample_password(value)


def _without_sample_password(url: str) -> str:
    if is_sample_password(unquote(urlsplit(url).password or "")):
        raise ValueError("a password of its own in the URL, not the one of our example")
    return url


def _strong_key(value: SecretStr) -> SecretStr:
    if value.get_secret_value() and (problem := weakness(value.get_secret_value())):
        raise ValueError(f"a key that nobody can guess, but it is {problem}; {HOW_TO_MAKE_ONE}")
    return value


def _web_url(value: SecretStr) -> SecretStr:
    if value.get_secret_value() and not value.get_secret_value().startswith(("https://", "http://")):
        raise ValueError("a URL like https://host/path")
    return value


def _origin_url(value: str) -> str:
    if value and not re.fullmatch(r"https?://[^/?#@\s;,']+/?", value):
        raise ValueError("a URL like https://host or http://host:8788, without a path")
    return value.rstrip("/")


def _anchor_places(value: SecretStr) -> SecretStr:
    for place in value.get_secret_value().split(","):
        if place.strip() and not re.match(r"(file:/|rediss?://.|s3://.|https?://.)", place.strip()):
            raise ValueError(
                "places with commas between, each like file:/path, redis://host, s3://bucket, https://host"
            )
    return value


def _import_folder(value: str) -> str:
    if value and not ("{customer}" in value and re.match(r"(s3://[^/?#]+/|file:///)", value)):
        raise ValueError("a folder for each customer, like s3://bucket/devices/{customer} or file:///srv/{customer}")
    return value


def _connect_url(value: str) -> str:
    if not value:
        return value
    host, _, parameters = value.removeprefix("sc://").partition("/")
    if not value.startswith("sc://") or not host:
        raise ValueError("a URL like sc://host:15002/;use_ssl=true")
    named = dict(one.partition("=")[::2] for one in parameters.split(";"))
    # pyspark turns TLS on for a token too.
    is_encrypted = named.get("use_ssl", "").lower() == "true" or bool(named.get("token"))
    if not is_encrypted and not is_loopback(re.sub(r":\d+$", "", host)):
        raise ValueError(
            "TLS to a host that is not this machine, because logins are sent to it: sc://host:port/;use_ssl=true, "
            "or with ;token=…"
        )
    return value


PostgresUrl = Annotated[str, AfterValidator(_postgres_url)]
OriginUrl = Annotated[str, AfterValidator(_origin_url)]
ConnectUrl = Annotated[str, AfterValidator(_connect_url)]
RedisUrl = Annotated[str, AfterValidator(_redis_url)]
StrongKey = Annotated[SecretStr, AfterValidator(_strong_key)]
SecretWebUrl = Annotated[SecretStr, AfterValidator(_web_url)]
AnchorPlaces = Annotated[SecretStr, AfterValidator(_anchor_places)]


class Settings(BaseSettings):
    """What an operator can set. Construct it with `load_settings()`, which turns a wrong value into a clear error."""

    model_config = SettingsConfigDict(
        env_file=".env", env_file_encoding="utf-8", extra="ignore", frozen=True, validate_default=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """As usual, without those in which no setting stands: to ask one for each setting takes milliseconds."""
        named = [
            source
            for source in (env_settings, dotenv_settings)
            if not isinstance(source, EnvSettingsSource) or not cls.model_fields.keys().isdisjoint(source.env_vars)
        ]
        return init_settings, *named

    # Stores
    database_url: PostgresUrl = Field(
        "",
        description="PostgreSQL, as the owner of our tables: for `migrate`, and for `up`, which migrates. "
        "Empty: start an embedded one.",
    )
    database_ddl_url: PostgresUrl = Field(
        "", description="Login of role clientmgr_ddl. Empty: DATABASE_URL's takes the role, unless it is a superuser."
    )
    database_writer_url: PostgresUrl = Field(
        "",
        description="Login of role clientmgr_writer. Empty: DATABASE_URL's takes the role, unless it is a superuser.",
    )
    database_reader_url: PostgresUrl = Field(
        "",
        description="Login of role clientmgr_reader. Empty: DATABASE_URL's takes the role, unless it is a superuser.",
    )
    redis_url: RedisUrl = Field("", description="Redis or Valkey. Empty: start an embedded one.")

    # Embedded servers
    data_dir: Path = Field(Path(".clientmgr"), description="Folder for the embedded servers' data, logs and secrets.")
    postgres_port: Port = Field(0, description="Port of the embedded PostgreSQL. 0: a free one.")
    redis_port: Port = Field(0, description="Port of the embedded Redis protocol server. 0: a free one.")
    embedded_minimum_free_mb: int = Field(
        500, ge=0, description="Refuse to start embedded servers with less free disk space than this."
    )
    java_home: str = Field("", description="Java 17+ for Spark. Empty: one on PATH, else the packaged one.")

    # Tenants and audit
    tenant_connections: int = Field(8, ge=1, le=100, description="Connections used to work on many tenants at once.")
    tenant_lock_timeout_ms: int = Field(
        10_000, ge=0, description="How long a schema change waits for a lock before it gives up. 0: for ever."
    )
    tenant_reconcile_grace_s: float = Field(
        300.0, ge=0, description="What is under way for longer counts as left behind: the reconciler finishes it."
    )
    unknown_tenant_grace_s: float = Field(
        120.0,
        ge=0,
        description="How long a message for an unknown customer waits for its activation, from its publishing.",
    )
    audit_hash_key: StrongKey = Field(
        SecretStr(""),
        description="Key of the audit log's hash chain and contact hashes. Empty: made and kept in DATA_DIR.",
    )
    audit_anchors: AnchorPlaces = Field(
        SecretStr(""),
        description="Where signed copies of the audit log's ends are kept, by comma: file:/path, redis://host, "
        "s3://bucket/prefix, https://host/path. Choose places that the database's owner can't write to. "
        "Empty: a file in DATA_DIR.",
    )
    audit_anchor_minutes: float = Field(
        1.0,
        gt=0,
        description="How often the ends of the audit log are copied to AUDIT_ANCHORS. "
        "What is cut off before it was copied stays unseen.",
    )

    # Erasure
    erasure_hours: float = Field(
        24.0,
        gt=0,
        description="Within so many hours of a deletion nothing but keyed hashes is left of what was deleted.",
    )
    erasure_sweep_minutes: float = Field(
        0.0, ge=0, description="How often the sweep runs that sees to it. 0: a quarter of ERASURE_HOURS."
    )
    tombstone_days: float = Field(
        45.0,
        ge=31,
        description="How long hashes of what was deleted are kept. It must be longer than any transport keeps events.",
    )
    push_token_verdict_days: float = Field(
        90.0, gt=0, description="How long a provider's verdict on a push token is kept."
    )

    # Dagster
    dagster_host: str = Field("127.0.0.1", description="Address of the Dagster UI.")
    dagster_port: Port = Field(3000, description="Port of the Dagster UI. 0: a free one.")
    dagster_database_url: PostgresUrl = Field(
        "",
        description="PostgreSQL for Dagster's own storage: login clientmgr_dagster. "
        "Empty: DATABASE_URL's login takes that role, unless it is a superuser.",
    )
    dagster_code_server_socket: str = Field(
        "",
        description="Unix socket of Dagster's code server, which only its own user can open. Empty: below DATA_DIR.",
    )
    dagster_automation: Literal["auto", "running", "stopped"] = Field(
        "auto",
        description="Whether Dagster's schedules and sensors run by default. auto: under `clientmgr up` and "
        "`clientmgr dagster …`, and nowhere else.",
    )
    dagster_event_retention_days: float = Field(
        30.0,
        ge=0,
        description="How long our part of Dagster's event log is kept; an asset's newest events stay in any case.",
    )
    lifecycle_wait_s: float = Field(
        4.0,
        ge=0,
        le=30,
        description="How long Dagster's sensors on activations and deletions wait for a message, in each evaluation. "
        "Dagster evaluates every 5 s.",
    )
    daemon_late_after_s: float = Field(
        300.0, ge=0, description="A daemon whose oldest unread message is older than this is shown as late."
    )
    alert_webhook_url: SecretWebUrl = Field(
        SecretStr(""),
        description="Told of each failed Dagster run, as JSON with a `text` for chats. Empty: only the log.",
    )

    # Spark
    spark_master: str = Field(
        "local[*]", description="Where Spark runs: local[*], spark://host:7077, yarn, k8s://https://host:443."
    )
    # Not SPARK_REMOTE: pyspark reads a variable of that name itself, and an empty one means Connect to it.
    spark_connect_url: ConnectUrl = Field(
        "",
        description="Spark Connect server, like sc://host:15002/;use_ssl=true: it is sent logins, so only on this "
        "machine may it be without TLS. Set: SPARK_MASTER does not count.",
    )
    spark_connect_token: SecretStr = Field(
        SecretStr(""),
        description="What SPARK_CONNECT_URL asks for; `up` makes one for its own. By TLS or to localhost.",
    )
    spark_shared: bool = Field(
        True,
        description="`up` keeps one Spark Connect server for all runs where SPARK_MASTER is local. Off: a JVM a run.",
    )
    spark_shared_idle_s: float = Field(
        900.0, gt=0, description="The shared Spark server is stopped when no run was connected for so long."
    )
    spark_shared_memory: str = Field(
        "1g", pattern=r"^[1-9][0-9]*[mg]$", description="Heap of the shared Spark server, like 512m or 2g."
    )
    spark_conf: dict[str, str] = Field(
        {}, description='More of Spark\'s own settings, as JSON: {"spark.executor.memory": "2g"}.'
    )
    spark_run_by: Literal["session", "submit"] = Field(
        "session",
        description="Who runs the batch jobs. session: the run itself, on SPARK_MASTER or by SPARK_CONNECT_URL. "
        "submit: a spark-submit for each job, to SPARK_MASTER, by Dagster Pipes.",
    )
    spark_submit: str = Field(
        "", description="Path of the spark-submit that SPARK_RUN_BY=submit starts. Empty: the pyspark package's."
    )
    spark_partitions: int = Field(
        8,
        ge=1,
        le=10_000,
        description="Tasks that a read of tenants, BigQuery or DynamoDB is cut into: a few per core.",
    )
    spark_slice_mb: int = Field(
        128, ge=1, description="A tenant's table that is larger is read in slices of this size, all at one moment."
    )
    spark_snapshot_max_s: int = Field(
        3600,
        ge=1,
        description="How long slices may share a moment before PostgreSQL ends it. VACUUM waits for it meanwhile.",
    )

    # Stores that we do not own
    bigquery_project: str = Field(
        "", description="Google Cloud project of the deleted contacts. Empty: there are none."
    )
    bigquery_deleted_contacts_table: str = Field(
        "contacts.deleted_contacts", description="BigQuery table of deleted contacts: dataset.table."
    )
    bigquery_scratch_dataset: str = Field(
        "",
        description="Dataset for pages of deleted contacts while they are read. Empty: where BigQuery keeps results.",
    )
    bigquery_endpoint: str = Field("", description="URL of a BigQuery stand-in. Empty: Google's.")
    bigquery_storage_endpoint: str = Field(
        "", description="host:port of a BigQuery Storage stand-in, without TLS. Empty: Google's."
    )

    # Batch work
    contact_deletion_page_size: int = Field(
        1_000_000, ge=1, le=1_000_000, description="Deleted contacts taken from BigQuery at a time."
    )
    contact_deletion_overlap_hours: float = Field(
        24.0, ge=0, description="How far behind its watermark BigQuery is read again, for rows that came late."
    )
    orphan_threshold_days: float = Field(
        30.0,
        gt=0,
        description="A device without a contact that gave no sign of life for longer than this is an orphan.",
    )
    orphan_batch_size: int = Field(5000, ge=1, le=50_000, description="Orphans deleted in one transaction.")
    orphan_max_share: float = Field(
        0.5, ge=0, le=1, description="A tenant that would lose more than this share of its devices is left alone."
    )
    orphan_guard_minimum: int = Field(
        100, ge=0, description="Up to this many orphans a tenant may lose whatever their share."
    )
    orphan_excluded_customers: str = Field(
        "",
        description="Customers whose orphans are never deleted, besides those still read from the legacy store: "
        "ids with commas between.",
    )
    orphan_dry_run: bool = Field(False, description="Count the orphans that would be deleted, and delete none.")
    orphan_attempts: int = Field(
        3, ge=1, le=10, description="How often a customer whose orphans could not be deleted is tried."
    )
    sync_validation: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Compare devices with DynamoDB when the dashboard's numbers are collected, which scans its table. "
        "auto: where DYNAMODB_ENDPOINT is set. Never with LEGACY_STORE=none.",
    )
    migration_check_hours: float = Field(
        48.0,
        gt=0,
        description="How long a comparison with DynamoDB allows a customer's migration to go on to the next stage.",
    )
    migration_max_fallback_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of a customer's contacts of the last 24 hours whose devices only DynamoDB had. Above it the "
        "customer's migration does not go on to PostgreSQL alone.",
    )
    sync_sample_size: int = Field(
        100, ge=1, le=10_000, description="Devices of each tenant that are compared with DynamoDB field by field."
    )
    sync_scan_attempts: int = Field(
        8, ge=1, le=20, description="How often DynamoDB is asked for a page, with backoff, before the sync check fails."
    )
    sync_tolerance: float = Field(
        0.01, ge=0, le=1, description="Share of devices that may differ from DynamoDB before a check complains."
    )

    # Processes and logs
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="auto: readable on a terminal, JSON in ECS field names otherwise."
    )
    shutdown_timeout_s: float = Field(
        20.0, gt=0, description="How long a process may take to stop before it is killed."
    )

    # Messages
    broker: Literal["postgres", "pubsub"] = Field("postgres", description="The transport that the daemons run on.")
    broker_total_partitions: int = Field(
        16, ge=1, le=1024, description="Partitions of a new topic on PostgreSQL; independent of the number of workers."
    )
    broker_batch_size: int = Field(100, ge=1, le=10_000, description="Messages a consumer takes at a time.")
    broker_wait_period_ms: int = Field(
        1000, ge=1, description="Longest wait between two looks for messages when no wake-up came."
    )
    broker_max_attempts: int = Field(
        10, ge=1, description="Attempts at a message whose error nobody foresaw before it is dead."
    )
    broker_max_message_bytes: int = Field(
        8 * 1024 * 1024,
        ge=1,
        lt=10_000_000,
        description="Largest message that may be published; Pub/Sub's own limit is 10 MB.",
    )
    broker_publish_timeout_ms: int = Field(
        30_000,
        ge=0,
        description="A transaction that holds up a topic, as it has appended to it, is cut off when idle for so long. "
        "0: never.",
    )
    broker_lease_s: float = Field(
        30.0,
        ge=1,
        description="A consumer of the log that gives no sign of life for longer loses the batch in its hands.",
    )
    broker_retention_hours: float = Field(
        168.0, ge=0, description="How long a message stays after every subscription has passed it."
    )
    writer_batch_size: int = Field(500, ge=1, le=10_000, description="Events a writer takes at a time.")
    writer_largest_batch_size: int = Field(
        2000, ge=1, le=10_000, description="Events a writer takes at a time while many wait and batches are quick."
    )
    writer_concurrency: int = Field(2, ge=1, le=64, description="Batches that a writer has in hand at once.")
    writer_lock_timeout_ms: int = Field(
        1000,
        ge=1,
        description="How long a batch waits for a tenant that somebody has locked before it goes to the retries.",
    )
    push_token_status_batch_size: int = Field(
        100, ge=1, le=10_000, description="Verdicts on push tokens taken at a time."
    )
    push_token_status_wait_ms: int = Field(1000, ge=0, description="How long a batch of verdicts may take to fill up.")
    contact_deletion_batch_size: int = Field(1000, ge=1, le=10_000, description="Contacts deleted at a time.")
    flipper_refresh_ms: int = Field(
        2000,
        ge=0,
        description="How old the flippers, and the applications' configuration, that a daemon goes by may be.",
    )
    client_fetcher_fallback_enabled: bool = Field(
        True,
        description="False: the device mapper reads PostgreSQL alone, whatever the flippers say, and more at once. "
        "Orphan deletion goes by it too.",
    )
    device_mapper_batches: int = Field(2, ge=1, le=64, description="Batches that a device mapper has in hand at once.")
    device_mapper_messages: int = Field(5, ge=1, le=1000, description="Messages in such a batch.")
    device_mapper_postgres_batches: int = Field(
        3, ge=1, le=64, description="DEVICE_MAPPER_BATCHES where PostgreSQL alone is read."
    )
    device_mapper_postgres_messages: int = Field(
        10, ge=1, le=1000, description="DEVICE_MAPPER_MESSAGES where PostgreSQL alone is read."
    )
    legacy_store: Literal["auto", "none", "dynamodb"] = Field(
        "auto",
        description="Where devices were before. none: PostgreSQL alone is read, whatever flippers say, and nothing "
        "asks AWS. auto: dynamodb where DYNAMODB_ENDPOINT, AWS_REGION or AWS_DEFAULT_REGION is set, else none.",
    )
    dynamodb_endpoint: OriginUrl = Field("", description="URL of DynamoDB. Empty: AWS's, for the environment's region.")
    dynamodb_devices_table: str = Field("client-manager-devices", description="The legacy store's table of devices.")
    dynamodb_concurrency: int = Field(32, ge=1, le=1000, description="Queries that a process sends DynamoDB at once.")
    dynamodb_timeout_ms: int = Field(5000, ge=1, description="How long DynamoDB may take to answer a query.")
    dynamodb_scan_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of the table's read capacity that a scan may take, all its segments together.",
    )
    dynamodb_scan_units: float = Field(
        0.0,
        ge=0,
        description="Read units a second that a scan may take, whatever the table has. 0: DYNAMODB_SCAN_SHARE of the "
        "table's capacity, which takes the right to DescribeTable.",
    )
    dynamodb_patience_ms: int = Field(
        15_000,
        ge=0,
        description="How long a batch of the device mapper may take while DynamoDB throttles. "
        "What is not answered by then comes again and needs only the rest.",
    )
    device_import_folder: Annotated[str, AfterValidator(_import_folder)] = Field(
        "",
        description="Where Dagster's asset device_files finds files to import: s3://bucket/devices/{customer} or "
        "file:///folder/{customer}; ?endpoint=https://host for a store of another maker. Empty: a run's configuration "
        "says it.",
    )
    pubsub_project: str = Field("client-manager", description="Google Cloud project of the topics.")
    pubsub_emulator_host: str = Field(
        "",
        description="host:port of a Pub/Sub emulator or of our gateway, as Google's client reads it. Empty: Google's.",
    )
    pubsub_gateway_address: str = Field(
        "", description="host:port of a gateway that is reached with TLS. Empty: PUBSUB_EMULATOR_HOST, or Google."
    )
    pubsub_token_file: str = Field("", description="File with the token that our own clients show to a gateway.")
    pubsub_tls_ca: str = Field(
        "", description="PEM file of who signed the gateway's certificate. Empty: who the system trusts."
    )
    pubsub_tls_certificate: str = Field("", description="PEM file of our own certificate, for a gateway with mTLS.")
    pubsub_tls_key: str = Field("", description="PEM file of our certificate's key, for its owner's eyes only.")
    pubsub_create_missing: bool = Field(
        True, description="Create missing topics and subscriptions. False: name them and stop."
    )
    pubsub_ack_deadline_s: int = Field(60, ge=10, le=600, description="Acknowledgement deadline of our subscriptions.")
    pubsub_max_outstanding_messages: int = Field(
        1000, ge=1, description="Flow control: messages held by a consumer at once."
    )
    pubsub_max_outstanding_bytes: int = Field(
        100 * 1024 * 1024, ge=1, description="Flow control: bytes held by a consumer at once."
    )
    pubsub_dead_letter_topic: str = Field(
        "",
        description="Dead-letter topic put on subscriptions that we create. Empty: none, our own error topics serve.",
    )
    pubsub_max_delivery_attempts: int = Field(
        10, ge=5, le=100, description="Deliveries before Pub/Sub moves a message to the dead-letter topic."
    )
    pubsub_gateway_host: str = Field("127.0.0.1", description="Address that `clientmgr pubsub-gateway` listens on.")
    pubsub_gateway_port: Port = Field(
        8085, description="Port that `clientmgr pubsub-gateway` listens on. 0: a free one."
    )
    pubsub_gateway_identities: str = Field(
        "",
        description="File that says who may call the gateway and with which rights; `clientmgr pubsub-gateway token` "
        "makes entries. Empty: whoever reaches it may do everything, on loopback only.",
    )
    pubsub_gateway_tls_certificate: str = Field(
        "", description="PEM file of the gateway's certificate and its chain. Empty: no TLS."
    )
    pubsub_gateway_tls_key: str = Field("", description="PEM file of the certificate's key, for its owner's eyes only.")
    pubsub_gateway_client_ca: str = Field(
        "", description="PEM file of who signs clients' certificates. Set: every client must show one (mTLS)."
    )
    pubsub_gateway_tls_by_proxy: bool = Field(
        False, description="A proxy in front of the gateway does TLS, and nobody reaches the gateway past it."
    )
    pubsub_gateway_max_bytes: int = Field(
        40_000_000,
        ge=10_500_000,
        description="Bytes of requests, and of answers, that the gateway holds at once, of all clients.",
    )
    pubsub_gateway_max_client_bytes: int = Field(
        21_000_000, ge=10_500_000, description="Bytes of requests, and of answers, that it holds at once of one client."
    )
    pubsub_gateway_max_connections: int = Field(
        1000,
        ge=10,
        description="Connections to the gateway. Where it is full, one that has said nothing yet is closed.",
    )
    pubsub_gateway_max_connections_per_address: int = Field(
        200,
        ge=2,
        description="Connections to the gateway from one address (IPv6: one /64), unless a proxy does its TLS.",
    )
    pubsub_gateway_max_topics: int = Field(1000, ge=0, description="Topics that a caller of the gateway may make.")
    pubsub_gateway_max_subscriptions: int = Field(
        1000, ge=0, description="Subscriptions that a caller of the gateway may make."
    )
    metrics_port: Port = Field(0, description="Port of a daemon's /metrics and /healthz. 0: not served.")
    metrics_host: str = Field(
        "127.0.0.1", description="Address of METRICS_PORT. One that others can reach needs METRICS_TOKEN."
    )
    metrics_token: StrongKey = Field(
        SecretStr(""),
        description="What a scrape of /metrics must send as `Authorization: Bearer …`. Empty: nothing, on a loopback "
        "address only.",
    )

    # Live broadcast
    instance_id: str = Field(
        "",
        max_length=100,
        description="Names a broadcast instance or durable writer; two of one name halve each other's stream. "
        "Empty: a new, unique one at each start.",
    )
    redis_telemetry_stream: str = Field(
        "telemetry:teltonika", min_length=1, description="Redis stream that devices' positions come from."
    )
    live_ws_host: str = Field(
        "127.0.0.1",
        description="Address of the live WebSocket and its page. One that others can reach needs LIVE_AUTH=on.",
    )
    live_ws_port: Port = Field(8787, description="Port of the live WebSocket and its page. 0: a free one.")
    live_auth: Literal["on", "off"] = Field(
        "on",
        description="off: everybody may see every event without a token. For a demo, on a loopback address only.",
    )
    live_token_key: StrongKey = Field(
        SecretStr(""), description="Key that live tokens are signed with. Empty: made and kept in DATA_DIR."
    )
    live_allowed_origins: str = Field(
        "",
        description="Web origins, by comma, whose pages may connect besides our own page's; * allows all of them.",
    )
    live_trusted_proxies: str = Field(
        "",
        description="Addresses and networks, by comma, of proxies in front of the live WebSocket. "
        "Their X-Forwarded-For says whose connection it is.",
    )
    live_broadcast_group_prefix: str = Field(
        "live-broadcast", min_length=1, description="Consumer groups of broadcast instances are named PREFIX-INSTANCE."
    )
    live_broadcast_batch_size: int = Field(
        100, ge=1, le=10_000, description="Records that a broadcast instance reads at a time."
    )
    live_broadcast_batch_block_ms: int = Field(
        1000,
        ge=1,
        le=30_000,  # neighbours take an instance that asks for nothing in a minute for dead
        description="Longest wait of one read when the stream is quiet.",
    )
    live_broadcast_tick_ms: int = Field(
        0,
        ge=0,
        le=1000,
        description="Pause for this long after a batch that was not full: less CPU, more lag. 0: no pause.",
    )
    live_io_uring: bool = Field(
        True, description="Send to many connections by one system call, where Linux has io_uring and lets us use it."
    )
    live_device_event_refresh_ms: int = Field(
        30_000,
        ge=100,
        description="How often the map of devices to events is read anew; at once when told of a change.",
    )
    live_ws_backpressure_threshold_bytes: int = Field(
        1_048_576, ge=1024, description="A connection with more unsent bytes than this is closed with 1008."
    )
    live_ws_stall_timeout_ms: int = Field(
        10_000,
        ge=100,
        description="A connection that takes nothing for this long while data waits is closed with 1008.",
    )
    live_ws_ping_interval_ms: int = Field(
        20_000,
        ge=100,
        description="A connection silent for this long is pinged; without an answer for as long again it is cut off.",
    )
    live_ws_max_connections: int = Field(
        10_000, ge=1, description="Connections at once that have shown a token; further ones get 1013."
    )
    live_ws_max_connections_per_address: int = Field(
        1000, ge=1, description="Of these, connections of one client address; further ones get 1013."
    )
    live_ws_max_unauthenticated: int = Field(
        200,
        ge=1,
        description="Connections at once that have not shown a token yet, plain HTTP too. "
        "A further one takes the place of the oldest.",
    )
    live_ws_max_unauthenticated_per_address: int = Field(
        50,
        ge=1,
        description="Of these, connections of one client address. A further one takes the place of its oldest.",
    )
    live_ws_token_within_ms: int = Field(
        5000,
        ge=100,
        description="A connection that has not sent a request and shown its token within this time is closed.",
    )
    live_ws_max_messages_per_s: float = Field(
        50.0,
        gt=0,
        description="WebSocket frames that one connection may send a second in the long run, pings too. "
        "Who exceeds it is closed with 1008.",
    )
    live_ws_message_burst: int = Field(
        200, ge=1, description="Frames that one connection may send at once after a while of silence."
    )
    live_ws_max_subscriptions: int = Field(100, ge=1, description="Topics that one connection may subscribe to.")
    live_ws_max_frame_bytes: int = Field(4096, ge=128, le=65_536, description="Largest message that a client may send.")
    live_max_record_bytes: int = Field(
        65_536,
        ge=1024,
        le=1_048_576,
        description="Largest record of the telemetry stream. The broadcast drops a larger one, the durable writer "
        "parks it.",
    )
    live_history_s: float = Field(
        60.0,
        ge=0,
        le=3600,
        description="How long positions are kept in memory for clients that come back and ask for what they missed.",
    )
    live_history_bytes: int = Field(
        16_777_216, ge=0, description="Memory that these positions may take; the oldest go first."
    )
    live_topics_warning: int = Field(
        10_000, ge=1, description="Warn when there are more topics than this: events are fewer, as a rule."
    )
    telemetry_batch_size: int = Field(
        500, ge=1, le=10_000, description="Positions that the durable writer takes at a time."
    )
    telemetry_claim_idle_ms: int = Field(
        30_000, ge=100, description="Positions that a writer has held for longer than this are taken over by another."
    )
    telemetry_retention_days: int = Field(30, ge=0, description="How long positions are kept. 0: for ever.")
    telemetry_stream_keep_s: float = Field(
        300.0, ge=0, description="How long a durable position stays in the stream before it is trimmed."
    )

    # HTTP intake
    intake_host: str = Field(
        "127.0.0.1",
        description="Address of the HTTP intake. One that others can reach needs INTAKE_TLS_CERTIFICATE or "
        "INTAKE_TLS_BY_PROXY.",
    )
    intake_port: Port = Field(8789, description="Port of the HTTP intake. 0: a free one.")
    intake_tls_certificate: str = Field(
        "", description="PEM file with the intake's certificate. Empty: plain HTTP, for loopback or behind a proxy."
    )
    intake_tls_key: str = Field("", description="PEM file with the certificate's key.")
    intake_tls_by_proxy: bool = Field(
        False, description="A proxy in front of the intake does TLS, and nobody reaches the intake past it."
    )
    intake_trusted_proxies: str = Field(
        "",
        description="Addresses and networks of the proxies in front of the intake, with commas. Their "
        "X-Forwarded-For says who asks; nobody else's does.",
    )
    intake_signing_key: StrongKey = Field(
        SecretStr(""),
        description="Key that the secrets of `app` keys are derived from; with another one they all stop. "
        "Empty: made and kept in DATA_DIR.",
    )
    intake_max_connections: int = Field(
        2000,
        ge=10,
        description="Connections to the intake. Where it is full, the one that kept it waiting longest is closed.",
    )
    intake_max_connections_per_address: int = Field(
        200,
        ge=2,
        description="Connections to the intake from one address (IPv6: one /64), unless a trusted proxy has it.",
    )
    intake_max_body_bytes: int = Field(
        1_048_576, ge=1024, le=16_777_216, description="Largest body of a request to the intake."
    )
    intake_max_events: int = Field(500, ge=1, le=10_000, description="Events in one request to the intake.")
    intake_key_events_per_s: float = Field(
        2000.0, gt=0, description="Events a second that one key may send in the long run. More are answered with 429."
    )
    intake_address_events_per_s: float = Field(
        100.0,
        gt=0,
        description="Events a second from one address (IPv6: one /64) in the long run, and requests without a valid "
        "key. Those with a `server` key do not count.",
    )
    intake_burst_s: float = Field(
        5.0, ge=1, le=3600, description="So many seconds' worth of events may come at once after a while of silence."
    )

    # Dashboard
    dashboard_host: str = Field(
        "127.0.0.1", description="Address of the dashboard. One that others can reach needs DASHBOARD_USERS_FILE."
    )
    dashboard_port: Port = Field(8788, description="Port of the dashboard. 0: a free one.")
    dashboard_users_file: str = Field(
        "",
        description="Who may sign in to the dashboard and to Dagster's UI: lines made by `clientmgr dashboard user`. "
        "Empty: no sign-in, on a loopback address only.",
    )
    dashboard_session_key: StrongKey = Field(
        SecretStr(""),
        description="Key that the dashboard's sessions are signed with. Empty: made and kept in DATA_DIR.",
    )
    dashboard_session_hours: float = Field(
        12.0, gt=0, le=24 * 30, description="How long a sign-in to the dashboard is good for."
    )
    dashboard_max_connections: int = Field(
        1000,
        ge=10,
        description="Connections to the dashboard. Where it is full, the one that kept it waiting longest is closed.",
    )
    dashboard_max_connections_per_address: int = Field(
        100,
        ge=2,
        description="Connections to the dashboard from one address (IPv6: one /64), unless a trusted proxy has it.",
    )
    dashboard_trusted_proxies: str = Field(
        "",
        description="Addresses and networks of the proxies in front of the dashboard, with commas. Their "
        "X-Forwarded-For says who asks; nobody else's does.",
    )
    dashboard_tls_certificate: str = Field(
        "",
        description="PEM file with the certificate of the dashboard and Dagster's UI. Empty: plain HTTP, for loopback "
        "or behind a proxy.",
    )
    dashboard_tls_key: str = Field("", description="PEM file with the certificate's key.")
    dashboard_url: OriginUrl = Field(
        "", description="Where browsers see the dashboard, where that is not DASHBOARD_HOST:DASHBOARD_PORT."
    )
    dashboard_cookie_domain: str = Field(
        "",
        pattern=r"^([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+)?$",
        description="The domain above DASHBOARD_URL and DAGSTER_URL, where their host names differ: every host below "
        "it gets the session's cookie. Empty: only the dashboard's host name, whatever the port.",
    )
    live_url: OriginUrl = Field(
        "", description="Where browsers see the live page, where that is not LIVE_WS_HOST:LIVE_WS_PORT."
    )
    dagster_url: OriginUrl = Field(
        "", description="Where browsers see the Dagster UI, where that is not DAGSTER_HOST:DAGSTER_PORT."
    )

    @property
    def has_legacy_store(self) -> bool:
        """Whether there is a DynamoDB to read at all. Everything that would ask it goes by this."""
        if self.legacy_store == "auto":
            return bool(self.dynamodb_endpoint or aws_region())
        return self.legacy_store == "dynamodb"

    @property
    def mapper_reads_legacy_store(self) -> bool:
        """Whether the device mapper may read it, for customers whose flippers say so."""
        return self.has_legacy_store and self.client_fetcher_fallback_enabled

    def effective(self, shown: Callable[[Any], Any] = display_value) -> list[tuple[str, Any, str]]:
        """(environment name, value with secrets hidden, help) of each setting, in the order they are declared."""
        rows = []
        for name, field in type(self).model_fields.items():
            rows.append((name.upper(), shown(self._decided(name)), field.description or ""))
        return rows

    def environment(self) -> dict[str, str]:
        """These settings as environment variables, secrets included: what a child process of ours is started with."""
        values = {}
        for name in type(self).model_fields:
            values[name.upper()] = _as_environment_value(self._decided(name))
        return values

    def _decided(self, name: str) -> Any:
        """A setting's value. Of one that goes by the environment, what it comes to: a child may not see all of that."""
        if name == "legacy_store":
            return "dynamodb" if self.has_legacy_store else "none"
        return getattr(self, name)


def aws_region() -> str:
    """The region that the environment names. boto3 knows only the second name, AWS's other libraries the first too."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""


def _as_environment_value(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return json.dumps(value) if isinstance(value, dict) else str(value)


def unset_in_environment(name: str) -> str:
    """What an environment says where a setting is not to have a value: its default."""
    return _as_environment_value(Settings.model_fields[name.lower()].default)


def load_settings(**overrides: Any) -> Settings:
    """Read the settings; a wrong value raises `SettingsError` with its name and what was expected."""
    try:
        return Settings(**overrides)
    except UnreadableSettingError as error:
        # Of what is no JSON pydantic says no more than the field's name.
        named = re.search(r'field "(\w+)"', str(error))
        raise SettingsError(f"{named[1].upper() if named else error}: expected JSON, got none") from None
    except ValidationError as error:
        problems = []
        for detail in error.errors(include_url=False):
            name = ".".join(str(part) for part in detail["loc"]).upper()
            expected = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            given = "" if _is_secret(name, detail["input"]) else f", got {display_value(str(detail['input']))!r}"
            problems.append(f"{name}: expected {expected}{given}")
        raise SettingsError("; ".join(problems)) from None


@functools.cache
def secret_setting_names() -> frozenset[str]:
    """Environment names of the settings whose values are never shown."""
    return frozenset(name.upper() for name, field in Settings.model_fields.items() if field.annotation is SecretStr)


@functools.cache
def sensitive_setting_names() -> tuple[str, ...]:
    """Environment names of the settings with which something is opened: secrets, and URLs that hold a password."""
    opening = {"spark_conf"} | {
        name
        for name, field in Settings.model_fields.items()
        if any(getattr(one, "func", None) in (_postgres_url, _redis_url) for one in field.metadata)
    }
    return tuple(
        name.upper() for name in Settings.model_fields if name in opening or name.upper() in secret_setting_names()
    )


def _is_secret(name: str, value: object) -> bool:
    """Whether showing `value` could show a secret: what was meant as a URL may hold a password in any place."""
    return name in secret_setting_names() or (name.endswith("_URL") and "://" not in str(value))
