"""How many entries the durable group has lost because somebody trimmed the stream before it had read them."""


class StreamLosses:
    """Counts each lost entry once, from three numbers of Redis: entries added, entries left, entries read by a group.

    A loss can be seen only until the group reads on, because then the group is past the gap. So measure before reading.
    """

    def __init__(self) -> None:
        self._trimmed_before: int | None = None

    def newly_lost(self, *, added: int, length: int, read: int | None) -> int:
        """Entries lost since the last call. `read` is None if Redis does not know how much the group has read."""
        trimmed, before = added - length, self._trimmed_before
        self._trimmed_before = trimmed
        if read is None:
            # Most likely the group has read nothing. What was trimmed before the first call may be older than it.
            return 0 if before is None else max(0, trimmed - before)
        return max(0, trimmed - max(read, before or 0))
