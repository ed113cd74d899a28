"""Measuring fairly: wall and processor time of a piece of work, variants taking turns, the same work proven."""

import difflib
import itertools
import pprint
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bench.harness.servers import BenchPostgres

Variant = TypeVar("Variant")


class DifferentWorkError(Exception):
    """Variants did not do the same: their times mean nothing side by side."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run of one variant took."""

    wall_s: float
    client_cpu_s: float
    """Of this process and of children that have ended."""
    server_cpu_s: float | None = None


def measure(work: Callable[[], object], server: BenchPostgres | None = None) -> Sample:
    """Run `work` once. Prepare everything before, and call `server.settle()`: only the work itself belongs in here."""
    server_before = server.cpu_seconds() if server else None
    client_before = _client_cpu_seconds()
    started = time.perf_counter()
    work()
    wall = time.perf_counter() - started
    client = _client_cpu_seconds() - client_before
    server_after = server.cpu_seconds() if server else None
    spent = None if server_before is None or server_after is None else server_after - server_before
    return Sample(wall, client, spent)


def take_turns(variants: Sequence[Variant], rounds: int) -> Iterator[Variant]:
    """A B C, B C A, C A B, …: what else the machine does hits all alike, and nobody is always the first."""
    for number in range(rounds):
        start = number % len(variants)
        yield from (*variants[start:], *variants[:start])


def ensure_same_work(what: str, results: Mapping[str, object]) -> None:
    """Fail unless all variants, by name, left the same result."""
    (first, expected), *others = results.items()
    for name, result in others:
        if result != expected:
            lines = difflib.unified_diff(_lines(expected), _lines(result), first, name, n=0, lineterm="")
            difference = "\n".join(itertools.islice(lines, 20))
            raise DifferentWorkError(f"{what}: {name} did not do what {first} did\n{difference}")


def _client_cpu_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _lines(result: object) -> list[str]:
    return pprint.pformat(result).splitlines()
