"""Where data is kept: our stores, embedded ones, and those of others."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from clientmgr.base.settings.kinds import Port, PostgresUrl, RedisUrl


class Stores:
    """Stores"""

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
    citus: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether new tenants are spread over the nodes of a Citus cluster. auto: where the database is the "
        "cluster's coordinator.",
    )
    redis_url: RedisUrl = Field("", description="Redis or Valkey. Empty: start an embedded one.")


class EmbeddedServers:
    """Embedded servers"""

    data_dir: Path = Field(Path(".clientmgr"), description="Folder for the embedded servers' data, logs and secrets.")
    postgres_port: Port = Field(0, description="Port of the embedded PostgreSQL. 0: a free one.")
    redis_port: Port = Field(0, description="Port of the embedded Redis protocol server. 0: a free one.")
    embedded_minimum_free_mb: int = Field(
        500, ge=0, description="Refuse to start embedded servers with less free disk space than this."
    )
    java_home: str = Field("", description="Java 17+ for Spark. Empty: one on PATH, else the packaged one.")


class OthersStores:
    """Stores that we do not own"""

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
