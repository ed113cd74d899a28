"""Makes clients of DynamoDB, the legacy store, for queries and for scans. No credentials are kept here.

AWS's client finds its credentials where it is made. So an access can be passed to another process without a secret.
"""

from dataclasses import dataclass
from typing import Any

from clientmgr.base.settings import Settings

REGION_OF_A_STAND_IN = "us-east-1"
"""The client needs a region, but a stand-in accepts any."""


@dataclass(frozen=True)
class DynamoDbAccess:
    """Where the table of devices is, with the limits of a request."""

    table: str
    endpoint: str = ""
    timeout_s: float = 5.0
    attempts: int = 3
    """Attempts of one request, with AWS's backoff between them."""
    connections: int = 1

    @classmethod
    def from_settings(cls, settings: Settings, *, attempts: int, connections: int = 1) -> "DynamoDbAccess":
        timeout_s = settings.dynamodb_timeout_ms / 1000
        return cls(settings.dynamodb_devices_table, settings.dynamodb_endpoint, timeout_s, attempts, connections)

    def client(self) -> Any:
        # Imported late: they take most of a second, and processes that read only PostgreSQL need neither.
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
