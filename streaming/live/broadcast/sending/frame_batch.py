"""The frames of one topic that came out of one read of the stream."""


class FrameBatch:
    """One by one for slow connections, joined for all others."""

    __slots__ = ("event", "frames", "joined")

    def __init__(self, event: str) -> None:
        self.event = event
        self.frames: list[tuple[str, int, bytes]] = []
        """(device, time of the fix, frame)."""
        self.joined = b""

    def add(self, device_id: str, ts: int, frame: bytes) -> None:
        self.frames.append((device_id, ts, frame))

    def join(self) -> None:
        self.joined = b"".join([frame for _, _, frame in self.frames])
