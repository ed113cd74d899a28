"""Anchors in Redis: a stream of the newest ones, entry ids are the anchors' numbers."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import redis

from clientmgr.audit.places.interface import ANSWER_WITHIN_S, AnchoredMeanwhileError, PlaceUnavailableError
from clientmgr.base.hiding import hide_password

STREAM: Final = "clientmgr:audit-anchors"
KEPT: Final = 100


class RedisPlace:
    """One stream. Redis itself refuses an entry whose id is not above the last one's."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        # redis://host:6379/0#name: more than one installation can share a server.
        self._stream = parts.fragment or STREAM
        self._url = urlunsplit(parts._replace(fragment=""))
        self.name = hide_password(url)

    def read_last(self) -> bytes | None:
        with self._client() as client:
            newest: Any = client.xrevrange(self._stream, count=1)
        # Somebody else's entry is no anchor of ours: whoever opens it says so.
        return newest[0][1].get(b"anchor", b"") if newest else None

    def write(self, number: int, line: bytes) -> None:
        with self._client() as client:
            try:
                client.xadd(self._stream, {"anchor": line}, id=f"{number}-0", maxlen=KEPT, approximate=False)
            except redis.ResponseError as error:
                if "equal or smaller" not in str(error):
                    raise
                raise AnchoredMeanwhileError(f"{self.name}: another process has written anchor {number}") from error

    @contextlib.contextmanager
    def _client(self) -> Iterator["redis.Redis"]:
        client = redis.Redis.from_url(self._url, socket_timeout=ANSWER_WITHIN_S, socket_connect_timeout=ANSWER_WITHIN_S)
        try:
            yield client
        except (redis.RedisError, OSError) as error:
            raise PlaceUnavailableError(f"{self.name}: {error}") from error
        finally:
            client.close()
