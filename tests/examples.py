"""How many examples a property is tried with: all of them in `make test`, a tenth in `make check`."""

import os


def examples(count: int) -> int:
    return count // 10 if os.environ.get("QUICK_TESTS") else count
