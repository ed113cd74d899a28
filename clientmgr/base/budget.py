"""How much one client may ask for in a while: a token bucket."""


class Budget:
    """Grows by `per_second` up to `burst`."""

    __slots__ = ("_at", "_burst", "_left", "_per_second")

    def __init__(self, per_second: float, burst: float, now: float) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._left = float(burst)
        self._at = now

    def take(self, now: float, amount: float = 1.0) -> bool:
        """Take so much. False: that is not left. More than `burst` is there only for whoever waited for all of it."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < min(amount, self._burst):
            return False
        # Whoever takes more than there ever is pays it back before anything else is taken.
        self._left -= amount
        return True

    def wait_s(self, amount: float = 1.0) -> float:
        """How long after the last `take` until so much is left."""
        return max(0.0, (min(amount, self._burst) - self._left) / self._per_second)

    def is_full(self, now: float) -> bool:
        """Whether it is as one that nobody has used yet."""
        return self._left + (now - self._at) * self._per_second >= self._burst
