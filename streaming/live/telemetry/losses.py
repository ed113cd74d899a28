"""How many entries of the stream the durable group has lost: trimmed away by somebody before it had read them."""


class StreamLosses:
    """Counts each lost entry once, by the numbers that Redis keeps: of entries added, still there, and read by a group.

    A loss can be seen only until the group reads on, for then it stands behind the gap: look before reading.
    """

    def __init__(self) -> None:
        self._trimmed_before: int | None = None

    def newly_lost(self, *, added: int, length: int, read: int | None) -> int:
        """Entries lost since the last look. `read` is None for a group of which Redis does not know where it stands."""
        trimmed, before = added - length, self._trimmed_before
        self._trimmed_before = trimmed
        if read is None:
            # Most likely it has read nothing: what was trimmed before we looked may be older than the group.
            return 0 if before is None else max(0, trimmed - before)
        return max(0, trimmed - max(read, before or 0))
