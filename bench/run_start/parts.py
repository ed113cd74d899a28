"""Where the time of several runs went, in words."""

import statistics
from collections.abc import Mapping, Sequence


def parts(found: Sequence[Mapping[str, float]]) -> str:
    """Each part's median."""
    return ", ".join(f"{name} {statistics.median(one[name] for one in found):.1f} s" for name in found[0])
