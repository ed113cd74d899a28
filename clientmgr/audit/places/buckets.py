"""Anchors in a bucket: an object for each, never overwritten. For Amazon S3 and what speaks its protocol."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from clientmgr.audit.places.interface import ANSWER_WITHIN_S, AnchoredMeanwhileError, PlaceUnavailableError

_LAST_NUMBER: Final = 10**12


def object_name(prefix: str, number: int) -> str:
    """Buckets list names in order: counting down puts the newest anchor first, however many there are."""
    return f"{prefix}{_LAST_NUMBER - number:012d}.json"


def _bucket_and_prefix(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    return parts.netloc, f"{prefix}/" if prefix else ""


class S3Place:
    """`s3://bucket/prefix`. Credentials and region come from the environment, as boto3 reads them."""

    def __init__(self, url: str) -> None:
        self._bucket, self._prefix = _bucket_and_prefix(url)
        # s3://bucket/prefix?endpoint=https://host: a store of another maker.
        self._endpoint = parse_qs(urlsplit(url).query).get("endpoint", [None])[0]
        self.name = url

    def read_last(self) -> bytes | None:
        with self._client() as client:
            listed = client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
            if not listed.get("Contents"):
                return None
            newest = client.get_object(Bucket=self._bucket, Key=listed["Contents"][0]["Key"])
            line: bytes = newest["Body"].read()
            return line

    def write(self, number: int, line: bytes) -> None:
        with self._client() as client:
            try:
                client.put_object(
                    Bucket=self._bucket,
                    Key=object_name(self._prefix, number),
                    Body=line,
                    ContentType="application/json",
                    IfNoneMatch="*",
                )
            except client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] not in ("PreconditionFailed", "ConditionalRequestConflict"):
                    raise
                raise AnchoredMeanwhileError(f"{self.name}: another process has written anchor {number}") from error

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        import boto3  # slow to import, and few have a bucket
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        config = Config(
            connect_timeout=ANSWER_WITHIN_S, read_timeout=ANSWER_WITHIN_S, retries={"total_max_attempts": 2}
        )
        try:
            yield boto3.client("s3", endpoint_url=self._endpoint, config=config)
        except (BotoCoreError, ClientError, OSError) as error:
            raise PlaceUnavailableError(f"{self.name}: {error}") from error
