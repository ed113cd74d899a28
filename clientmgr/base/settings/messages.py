"""The message log and the daemons that read it."""

from typing import Literal

from pydantic import Field


class Messages:
    """Messages"""

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
