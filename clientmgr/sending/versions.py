"""Versions of applications and systems, compared by their numbers: 4.10 is later than 4.9. Pure."""

import functools
import re

# Not \d, which takes other alphabets' digits as well. Numbers of more digits than these are no version of anything.
_VERSION = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18}){0,31}")

Version = tuple[int, ...]


@functools.lru_cache(maxsize=16_384)
def parse_version(text: str) -> Version | None:
    """The numbers of a version, so that 4.1 and 4.1.0 are the same; None: it is not made of numbers alone."""
    if _VERSION.fullmatch(text) is None:
        return None
    numbers = [int(part) for part in text.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
