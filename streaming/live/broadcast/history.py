"""The positions that arrived lately: for clients that come back after a moment and ask for what they missed."""

from collections import deque
from collections.abc import Iterable
from operator import itemgetter

OVERHEAD = 250
"""Bytes that a position takes here besides its own."""


class History:
    """Bounded by age and by size, whichever is less. Kept by device, so that an answer costs what is in it."""

    def __init__(self, keep_s: float, max_bytes: int) -> None:
        self._keep_ms = int(keep_s * 1000)
        self._max_bytes = max_bytes
        self._order: deque[tuple[int, str]] = deque()
        self._by_device: dict[str, deque[tuple[int, bytes]]] = {}
        self._bytes = 0
        self._begins_ms: int | None = None

    def begin(self, at_ms: int) -> None:
        """Nothing that arrived from here on is missing. Called once, before the first position."""
        self._begins_ms = at_ms

    @property
    def has_begun(self) -> bool:
        """Whether anything is known yet."""
        return self._begins_ms is not None

    def covers(self, since_ms: int) -> bool:
        """Whether everything that arrived since then is here."""
        return self._begins_ms is not None and self._begins_ms <= since_ms

    def add(self, device_id: str, added_ms: int, body: bytes) -> None:
        """In the order of arrival."""
        self._order.append((added_ms, device_id))
        kept = self._by_device.get(device_id)
        if kept is None:
            kept = self._by_device[device_id] = deque()
        kept.append((added_ms, body))
        self._bytes += len(body) + OVERHEAD
        oldest_ms = added_ms - self._keep_ms
        while self._order and (self._order[0][0] < oldest_ms or self._bytes > self._max_bytes):
            self._drop_oldest()

    def since(self, device_ids: Iterable[str], since_ms: int) -> list[bytes]:
        """What is here of these devices, in the order of arrival."""
        found: list[tuple[int, bytes]] = []
        for device_id in device_ids:
            kept = self._by_device.get(device_id)
            if kept is not None and kept[-1][0] >= since_ms:
                found += [one for one in kept if one[0] >= since_ms]
        return [body for _, body in sorted(found, key=itemgetter(0))]

    def _drop_oldest(self) -> None:
        added_ms, device_id = self._order.popleft()
        kept = self._by_device[device_id]
        self._bytes -= len(kept.popleft()[1]) + OVERHEAD
        if not kept:
            del self._by_device[device_id]
        self._begins_ms = max(self._begins_ms or 0, added_ms + 1)
