"""Anchors by HTTP: POST hands one over, GET asks for the last. What answers no GET is only written to."""

import contextlib
import hashlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from clientmgr.audit.places.interface import (
    ANSWER_WITHIN_S,
    AnchoredMeanwhileError,
    PlaceNotReadableError,
    PlaceUnavailableError,
)

LARGEST_BYTES: Final = 256 * 1024 * 1024
_WRITE_ONLY = (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)
_NOTHING_YET = (HTTPStatus.NOT_FOUND, HTTPStatus.NO_CONTENT)
_TAKEN = (HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED)


class WebhookPlace:
    """`https://host/path`. 405 or 501 to a GET says that what was written can't be had back."""

    def __init__(self, url: str) -> None:
        self._url = url
        # Its path is often its secret: a digest tells two of one host apart.
        parts = urlsplit(url)
        self.name = f"{parts.scheme}://{parts.hostname}/… ({hashlib.sha256(url.encode()).hexdigest()[:8]})"

    def read_last(self) -> bytes | None:
        try:
            with self._answer("GET") as (status, body):
                return None if status in _NOTHING_YET else body
        except urllib.error.HTTPError as error:
            if error.code in _NOTHING_YET:
                return None
            if error.code in _WRITE_ONLY:
                raise PlaceNotReadableError(f"{self.name} takes anchors and does not give them back") from error
            raise PlaceUnavailableError(f"{self.name}: it answers {error.code}") from error

    def write(self, number: int, line: bytes) -> None:
        try:
            with self._answer("POST", line):
                pass
        except urllib.error.HTTPError as error:
            if error.code in _TAKEN:
                raise AnchoredMeanwhileError(f"{self.name}: another process has written anchor {number}") from error
            raise PlaceUnavailableError(f"{self.name}: it answers {error.code}") from error

    @contextlib.contextmanager
    def _answer(self, method: str, body: bytes | None = None) -> Iterator[tuple[int, bytes]]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        request = urllib.request.Request(self._url, data=body, headers=headers, method=method)  # noqa: S310  # http(s)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_WITHIN_S) as answer:  # noqa: S310
                yield answer.status, answer.read(LARGEST_BYTES)
        except urllib.error.HTTPError:
            raise
        except OSError as error:
            raise PlaceUnavailableError(f"{self.name}: {error}") from error
