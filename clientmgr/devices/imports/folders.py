"""Folders of files to import: on this machine, or below a prefix of an S3 bucket. Files come and go by their names."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import PermanentError, TransientError

CUSTOMER: Final = "{customer}"
_ATTEMPTS: Final = 5
_GONE: Final = frozenset({"404", "NoSuchKey"})
_WRONG: Final = frozenset({"NoSuchBucket", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403"})


class FolderError(PermanentError):
    """The folder can't be read or written, and trying again does not help."""


class FileGoneError(FolderError):
    """It was there, or might have been."""


class FolderUnavailableError(TransientError):
    """The object store does not answer, or has too much to do."""


@dataclass(frozen=True, slots=True)
class FileInFolder:
    name: str
    version: str
    """Another one after the file has changed."""
    modified_s: float


class Folder(Protocol):
    """Where files are. Names are relative, without a folder in between."""

    def files(self) -> list[FileInFolder]: ...

    def fetch(self, name: str, target: Path) -> bool:
        """Write the file's bytes there. False: there is none."""
        ...

    def put(self, source: Path, name: str) -> None: ...

    def remove(self, name: str) -> None: ...


def open_folder(place: str, customer_id: CustomerId) -> Folder:
    """`s3://bucket/prefix/{customer}`, or a folder of this machine as `file:///…`."""
    url = urlsplit(place.replace(CUSTOMER, str(customer_id)))
    if url.scheme == "s3":
        prefix = url.path.strip("/")
        # ?endpoint=https://host: a store of another maker, as for the audit log's places.
        endpoint = parse_qs(url.query).get("endpoint", [None])[0]
        return BucketFolder(url.netloc, f"{prefix}/" if prefix else "", endpoint)
    return LocalFolder(Path(unquote(url.path)))


@dataclass(frozen=True)
class LocalFolder:
    path: Path

    def files(self) -> list[FileInFolder]:
        if not self.path.is_dir():
            return []
        # A link is not followed: whoever may drop files here could have us read what we may read and they may not.
        found = [(one.name, one.lstat()) for one in sorted(self.path.iterdir())]
        found = [(name, state) for name, state in found if stat.S_ISREG(state.st_mode)]
        return [FileInFolder(name, f"{state.st_mtime_ns}-{state.st_size}", state.st_mtime) for name, state in found]

    def fetch(self, name: str, target: Path) -> bool:
        try:
            source = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise FolderError(f"{self.path / name}: expected a file that can be read and is no link: {error}") from None
        with os.fdopen(source, "rb") as stream, target.open("wb") as copy:
            if not stat.S_ISREG(os.fstat(source).st_mode):
                raise FolderError(f"{self.path / name}: expected a file")
            shutil.copyfileobj(stream, copy)
        return True

    def put(self, source: Path, name: str) -> None:
        # Whole or not at all, and nobody else's to read: rows are somebody's data.
        beside = self.path / f".{name}.new"
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
            copy.write(source.read_bytes())
        beside.replace(self.path / name)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


@dataclass(frozen=True)
class BucketFolder:
    """Objects below a prefix. Credentials are found by AWS's own rules."""

    bucket: str
    prefix: str
    endpoint: str | None = None

    def files(self) -> list[FileInFolder]:
        with self._client() as client:
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix, Delimiter="/"
            )
            found = [one for page in pages for one in page.get("Contents", ())]
        return [
            FileInFolder(name, one["ETag"].strip('"'), one["LastModified"].timestamp())
            for one in found
            if (name := one["Key"].removeprefix(self.prefix))
        ]

    def fetch(self, name: str, target: Path) -> bool:
        try:
            with self._client() as client:
                client.download_file(self.bucket, self.prefix + name, str(target))
        except FileGoneError:
            return False
        return True

    def put(self, source: Path, name: str) -> None:
        with self._client() as client:
            client.upload_file(str(source), self.bucket, self.prefix + name)

    def remove(self, name: str) -> None:
        with self._client() as client:
            client.delete_object(Bucket=self.bucket, Key=self.prefix + name)

    @cached_property
    def _s3(self) -> Any:
        """One client for all files: each new one reads megabytes that AWS's library knows of all services."""
        import boto3  # slow to import, and few have a bucket
        from botocore.config import Config

        config = Config(retries={"mode": "standard", "max_attempts": _ATTEMPTS})
        return boto3.session.Session().client("s3", endpoint_url=self.endpoint, config=config)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        where = f"s3://{self.bucket}/{self.prefix}"
        try:
            yield self._s3
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            kind = FileGoneError if code in _GONE else FolderError if code in _WRONG else FolderUnavailableError
            raise kind(f"{where}: {error}") from error
        except NoCredentialsError as error:
            raise FolderError(f"{where}: {error}") from error
        except (BotoCoreError, Boto3Error) as error:
            raise FolderUnavailableError(f"{where}: {error}") from error
