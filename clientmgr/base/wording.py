"""Numbers with their nouns, sizes and spans of time, for pages and messages. Pure."""


def plural(amount: int, one: str, many: str = "") -> str:
    """1 message, 2 messages. `many`: where it is not `one` with an s."""
    return f"{amount:,} {one if amount == 1 else many or f'{one}s'}"


def span(seconds: float) -> str:
    """12 s, 5 min, 3 h, 40 d: in the largest unit of which there are two."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:,.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def size(amount: float) -> str:
    """12 B, 3.4 kB, 5.6 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"
