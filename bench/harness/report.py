"""Results and how they are shown: a table per comparison, ratios first, because figures depend on the machine."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.harness.measure import Sample


@dataclass(frozen=True, slots=True)
class Line:
    """One variant and its runs."""

    variant: str
    samples: tuple[Sample, ...]

    @property
    def wall_s(self) -> float:
        return statistics.median(sample.wall_s for sample in self.samples)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Variants that did the same work. The first line is ours: the ratios are to it."""

    title: str
    lines: tuple[Line, ...]
    amount: int = 1
    """How much work a run is, in `unit`; 1: the time is what counts, not a rate."""
    unit: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """What was measured and is no race: a table of texts."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    figures: tuple[Mapping[str, object], ...] = ()
    """The same unrounded, for programs: `--json` has them."""


def speed_ratio(ours: Line, other: Line) -> float:
    """How many times as fast as `other` we are: the median over the rounds, each round compared within itself."""
    if len(ours.samples) != len(other.samples):
        return other.wall_s / ours.wall_s
    pairs = zip(ours.samples, other.samples, strict=True)
    return statistics.median(theirs.wall_s / mine.wall_s for mine, theirs in pairs)


def print_result(console: Console, result: Comparison | Listing) -> None:
    console.print()
    console.print(_table_of(result) if isinstance(result, Comparison) else _table_of_listing(result))


def _table_of_listing(listing: Listing) -> Table:
    table = Table(title=listing.title, title_justify="left", title_style="bold", caption_justify="left")
    for number, heading in enumerate(listing.headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in listing.rows:
        table.add_row(*row)
    table.caption = "\n".join(listing.notes) or None
    return table


def _table_of(comparison: Comparison) -> Table:
    table = Table(title=comparison.title, title_justify="left", title_style="bold", caption_justify="left")
    table.add_column("variant", no_wrap=True)
    if comparison.amount > 1:
        table.add_column(f"{comparison.unit}/s", justify="right")
    for heading in ("time", "least … most", "client CPU", "server CPU", "first ÷ this"):
        table.add_column(heading, justify="right", no_wrap=True)
    first = comparison.lines[0]
    for line in comparison.lines:
        walls = [sample.wall_s for sample in line.samples]
        server_cpu = [sample.server_cpu_s for sample in line.samples if sample.server_cpu_s is not None]
        table.add_row(
            line.variant,
            *([f"{comparison.amount / line.wall_s:,.0f}"] if comparison.amount > 1 else []),
            _time(line.wall_s),
            f"{_time(min(walls))} … {_time(max(walls))}",
            _time(statistics.median(sample.client_cpu_s for sample in line.samples)),
            _time(statistics.median(server_cpu)) if server_cpu else "",
            f"{speed_ratio(first, line):.2f}×",
        )
    table.caption = "\n".join(comparison.notes) or None
    return table


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"
