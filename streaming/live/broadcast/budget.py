"""How much one client may ask for in a while: a token bucket."""


class Budget:
    """Grows by `per_second` up to `burst`."""

    __slots__ = ("_at", "_burst", "_left", "_per_second")

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._left = float(burst)
        self._at = now

    def take(self, now: float) -> bool:
        """Take one. False: nothing is left."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
