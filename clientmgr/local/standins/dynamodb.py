"""A DynamoDB on this machine: ministack."""

import functools
import socket
from typing import Any

from clientmgr.base.portions import portions
from clientmgr.local.children.guarded import GuardedProcess
from clientmgr.local.embedded.server import LOOPBACK
from clientmgr.local.standins.server import StandIn

# Whatever a client says it is: the stand-in believes it.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "stand-in", "AWS_SECRET_ACCESS_KEY": "stand-in", "AWS_DEFAULT_REGION": "us-east-1"}
ITEMS_A_WRITE = 25


@functools.cache
def _client_of(url: str) -> Any:
    import boto3

    return boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )


class DynamoDbStandIn(StandIn):
    """Made for the table of devices."""

    name = "DynamoDB stand-in"

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        """What `Settings` are to say to reach it; CREDENTIALS belong in the environment."""
        return {"legacy_store": "dynamodb", "dynamodb_endpoint": self.url}

    def client(self) -> Any:
        """Made once: that takes longer than most of what is asked of it."""
        return _client_of(self.url)

    def create_devices_table(self, table: str, *, read_units: int = 0) -> None:
        """Without `read_units` it is on demand."""
        throughput = {"ReadCapacityUnits": read_units, "WriteCapacityUnits": 1000}
        billing = {"ProvisionedThroughput": throughput} if read_units else {"BillingMode": "PAY_PER_REQUEST"}
        self.client().create_table(
            TableName=table,
            KeySchema=[
                {"AttributeName": "contactKey", "KeyType": "HASH"},
                {"AttributeName": "deviceKey", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": "contactKey", "AttributeType": "S"},
                {"AttributeName": "deviceKey", "AttributeType": "S"},
            ],
            **billing,
        )

    def put(self, table: str, items: list[dict[str, Any]]) -> None:
        """Items in DynamoDB's own JSON."""
        self._write(table, [{"PutRequest": {"Item": item}} for item in items])

    def delete(self, table: str, keys: list[dict[str, Any]]) -> None:
        """Items by their keys, in DynamoDB's own JSON."""
        self._write(table, [{"DeleteRequest": {"Key": key}} for key in keys])

    def _write(self, table: str, requests: list[dict[str, Any]]) -> None:
        client = self.client()
        for some in portions(requests, ITEMS_A_WRITE):
            client.batch_write_item(RequestItems={table: list(some)})

    def _launch(self) -> GuardedProcess:
        environment = {
            **CREDENTIALS,
            "BIND_HOST": LOOPBACK,
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "dynamodb",
            # It starts these whatever SERVICES says, on all addresses, and BIND_HOST does not count for them.
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "LOG_LEVEL": "WARNING",
        }
        return self._run([self._program("ministack")], environment)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1):
                return True
        except OSError:
            return False
