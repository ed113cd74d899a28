"""A DynamoDB server for the tests, as a process on a free port, and one in front of it that fails as it is told."""

import contextlib
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import boto3
from boto3.dynamodb.types import TypeSerializer

from clientmgr.local.embedded.server import free_port
from tests.waiting import eventually

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
TABLE = "client-manager-devices"


class DynamoDb:
    """moto's server. What is in it is gone with the process."""

    def __init__(self, log_file: Path) -> None:
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
                env={**os.environ, **CREDENTIALS},
                stdout=log,
                stderr=log,
            )
        eventually(self._answers, f"moto answers ({self._log_file})")
        self.create_table(TABLE, "contactKey", "deviceKey")

    def create_table(self, name: str, partition_key: str, sort_key: str) -> None:
        keys = (partition_key, "HASH"), (sort_key, "RANGE")
        self._client().create_table(
            TableName=name,
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
            BillingMode="PAY_PER_REQUEST",
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def put(self, customer: int, contact: int, application: str, client: str, **attributes: Any) -> None:
        """A device as the legacy store has it; by default an iPhone that can be reached."""
        item = {
            "contactKey": f"{customer}#{contact}",
            "deviceKey": f"{application}#{client}",
            "platform": "ios",
            "pushEnabled": True,
            "pushToken": f"token-of-{client}",
            "kind": "apns",
            "language": "en",
            **attributes,
        }
        serialize = TypeSerializer().serialize
        self._client().put_item(TableName=TABLE, Item={name: serialize(value) for name, value in item.items()})

    def _client(self) -> Any:
        return boto3.client(
            "dynamodb",
            endpoint_url=self.url,
            region_name="eu-central-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log_file.read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=5):  # noqa: S310  # our own server
                return True
        except OSError:
            return False


Mood = Literal["well", "limited", "throttling", "silent", "confused", "gone"]

THROTTLED = (
    b'{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"slow down"}'
)


class Allowance:
    """A token bucket, like a table's capacity: so many queries at once, and so many a second."""

    def __init__(self, at_once: float, per_s: float = 0.0) -> None:
        self._at_once = self._left = at_once
        self._per_s = per_s
        self._looked_at = time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        with self._lock:
            now = time.monotonic()
            self._left = min(self._at_once, self._left + (now - self._looked_at) * self._per_s)
            self._looked_at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True


class MoodyDynamoDb:
    """Stands in front of a server: passes requests on, all or as many as allowed, throttles, is silent or hangs up."""

    def __init__(self, server: DynamoDb) -> None:
        self.mood: Mood = "well"
        self.allowance = Allowance(0)
        """Of the mood "limited", and the mood when it is used up."""
        self.when_used_up: Mood = "throttling"
        self.requests = 0
        self.passed_on = 0
        self.in_hand = 0
        self.most_in_hand = 0
        self._server = server
        self._lock = threading.Lock()
        self.over = threading.Event()

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """Its URL."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            self.over.set()
            server.shutdown()
            thread.join()
            server.server_close()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self.requests += 1
            self.in_hand += 1
            self.most_in_hand = max(self.most_in_hand, self.in_hand)
        try:
            yield
        finally:
            with self._lock:
                self.in_hand -= 1

    def answer(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        mood = self.when_used_up if self.mood == "limited" and not self.allowance.take() else self.mood
        match mood:
            case "throttling":
                return 400, THROTTLED
            case "confused":
                return 502, b"<html>Bad gateway</html>"
            case "silent":
                self.over.wait(30)
                return 503, b""
        with self._lock:
            self.passed_on += 1
        request = urllib.request.Request(self._server.url, body, headers)  # noqa: S310  # our own server
        try:
            with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310  # our own server
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        moody = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with moody.counted(), contextlib.suppress(ConnectionError):
                    if moody.mood == "gone":
                        self.close_connection = True
                        return
                    status, answer = moody.answer(body, dict(self.headers))
                    self.send_response(status)
                    self.send_header("Content-Type", "application/x-amz-json-1.0")
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class calls it so
                """Nobody reads it."""

        return Handler
