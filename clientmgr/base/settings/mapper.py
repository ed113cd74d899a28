"""The device mapper, and the legacy store that it may read."""

from typing import Literal

from pydantic import Field

from clientmgr.base.settings.kinds import OriginUrl


class DeviceMapper:
    """Device mapper and the legacy store"""

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
