"""Numbers with their nouns, for pages and messages. Pure."""


def plural(amount: int, one: str, many: str = "") -> str:
    """1 message, 2 messages. `many`: where it is not `one` with an s."""
    return f"{amount:,} {one if amount == 1 else many or f'{one}s'}"
