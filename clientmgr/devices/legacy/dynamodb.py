"""How the legacy store is reached: clients of DynamoDB, for queries and for scans. No credentials are kept here.

AWS's client finds those where it is made, so that what is handed to another process names a place and nothing secret.
"""

from dataclasses import dataclass
from typing import Any

from clientmgr.base.settings import Settings

REGION_OF_A_STAND_IN = "us-east-1"
"""Anything will do, but the client wants one."""


@dataclass(frozen=True)
class DynamoDbAccess:
    """Where the table of devices is, and how patiently it is asked."""

    table: str
    endpoint: str = ""
    timeout_s: float = 5.0
    attempts: int = 3
    """Of one request, with AWS's backoff between them."""
    connections: int = 1

    @classmethod
    def from_settings(cls, settings: Settings, *, attempts: int, connections: int = 1) -> "DynamoDbAccess":
        timeout_s = settings.dynamodb_timeout_ms / 1000
        return cls(settings.dynamodb_devices_table, settings.dynamodb_endpoint, timeout_s, attempts, connections)

    def client(self) -> Any:
        # They take most of a second to import, and whoever reads PostgreSQL alone needs neither.
        import boto3
        from botocore.config import Config

        session = boto3.Session()
        endpoint = self.endpoint or None
        return session.client(
            "dynamodb",
            endpoint_url=endpoint,
            region_name=session.region_name or (REGION_OF_A_STAND_IN if endpoint else None),
            config=Config(
                connect_timeout=self.timeout_s,
                read_timeout=self.timeout_s,
                retries={"mode": "standard", "total_max_attempts": self.attempts},
                max_pool_connections=self.connections,
            ),
        )
