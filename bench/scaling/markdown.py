"""Numbers and tables as Markdown. Pure."""

import math
from collections.abc import Sequence

from bench.scaling.model import GB, HOUR_S, TB

KB, MB = 1e3, 1e6


def rounded(number: float) -> str:
    if math.isinf(number):
        return "–"
    digits = max(int(math.log10(max(number, 1))) - 1, 0)
    return f"{round(number, -digits):,.0f}"


def size(number: float) -> str:
    for unit, name in ((1000 * TB, "PB"), (TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "kB")):
        if number >= unit:
            value = number / unit
            return f"{value:,.0f} {name}" if value >= 10 else f"{value:.1f} {name}"
    return f"{number:.0f} bytes"


def duration(seconds: float) -> str:
    if seconds >= HOUR_S:
        return f"{seconds / HOUR_S:,.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
