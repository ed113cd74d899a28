"""Which keys, tokens and passwords are too weak to start with: those of our own examples, and short ones."""

import itertools
import re
from typing import Final

LEAST_CHARACTERS: Final = 24
LEAST_LEFT: Final = 16
LEAST_DIFFERENT: Final = 8
HOW_TO_MAKE_ONE: Final = "make one with `openssl rand -hex 32`"

_SAMPLES: Final = re.compile(
    r"change[-_ ]?(me|it|this)|replace[-_ ]?(me|it|this)|fill[-_ ]?(me )?in|example|sample|placeholder|default|insecure"
    r"|pass(word|wd|phrase)|secret|hunter2|letmein|qwertz?y?|admin|client[-_ ]?manager|clientmgr|your|todo|xxx+"
    r"|test|demo|dummy|bench(mark)?|audit|hash|live|token|dashboard|session|metrics|key|of|the|some|length|please",
    re.IGNORECASE,
)
"""Words of our examples, and of others'. They do no harm in a key that has enough besides."""
_SAMPLE_PASSWORDS: Final = re.compile(r"<?(change[-_ ]?(me|it|this)|replace[-_ ]?(me|it|this)|placeholder)>?", re.I)


def weakness(key: str) -> str:
    """What is wrong with `key`, in words that follow "it is"; empty: nothing."""
    if len(key) < LEAST_CHARACTERS:
        return f"shorter than {LEAST_CHARACTERS} characters"
    left = _without_runs(_without_repetition(_SAMPLES.sub("", key)))
    if len(left) < LEAST_LEFT or len(set(left.lower())) < LEAST_DIFFERENT:
        return "a sample, or easy to guess"
    return ""


def is_sample_password(password: str) -> bool:
    """Whether it is what our examples say in place of a password. How good others are is for whoever made them."""
    return _SAMPLE_PASSWORDS.fullmatch(password) is not None


def _without_repetition(text: str) -> str:
    """Its shortest part that makes up the whole when repeated, and a part of itself at last."""
    for length in range(1, len(text) // 2 + 1):
        if all(one == other for one, other in zip(text, text[length:], strict=False)):
            return text[:length]
    return text


def _without_runs(text: str) -> str:
    """Less what follows from the two characters before it: aaaa, 1234, fedc."""
    steps = [ord(after) - ord(before) for before, after in itertools.pairwise(text)]
    foreseen = [False, False, *(one == other and abs(one) <= 1 for one, other in itertools.pairwise(steps))]
    return "".join(character for character, known in zip(text, foreseen, strict=False) if not known)
