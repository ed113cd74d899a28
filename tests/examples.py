"""How often a property is tried: all in `make thorough`, a quarter in `make test`, a tenth in `make check`.

What a test proves does not depend on it, only how rare a case it comes upon. Examples are others in each run.
"""

import os


def examples(count: int) -> int:
    if os.environ.get("THOROUGH_TESTS"):
        return count
    return count // (10 if os.environ.get("QUICK_TESTS") else 4)
