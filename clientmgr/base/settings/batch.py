"""Dagster, Spark and the batch jobs."""

from typing import Literal

from pydantic import Field, SecretStr

from clientmgr.base.settings.kinds import ConnectUrl, ImportFolder, Port, PostgresUrl, SecretWebUrl


class Dagster:
    """Dagster"""

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
    daemon_late_after_s: float = Field(
        300.0, ge=0, description="A daemon whose oldest unread message is older than this is shown as late."
    )
    alert_webhook_url: SecretWebUrl = Field(
        SecretStr(""),
        description="Told of each failed Dagster run, as JSON with a `text` for chats. Empty: only the log.",
    )


class Spark:
    """Spark"""

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
    spark_reads_nodes: bool = Field(
        True,
        description="On a Citus cluster, read tenants from the nodes that have them, where Spark can reach those; "
        "otherwise all is read through the coordinator.",
    )
    spark_snapshot_max_s: int = Field(
        3600,
        ge=1,
        description="How long slices may share a moment before PostgreSQL ends it. VACUUM waits for it meanwhile.",
    )


class BatchWork:
    """Batch work"""

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
    device_import_folder: ImportFolder = Field(
        "",
        description="Where Dagster's asset device_files finds files to import: s3://bucket/devices/{customer} or "
        "file:///folder/{customer}; ?endpoint=https://host for a store of another maker. Empty: there are none.",
    )
