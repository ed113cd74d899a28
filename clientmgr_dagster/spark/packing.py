"""How a read of many tenants is cut into Spark's partitions. Pure.

One partition per tenant would cost more than the work (200 of them three times what eight do), one for a huge tenant
would keep the others waiting. So a large table is cut into ranges of its pages, and the pieces are packed.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clientmgr.base.customer_ids import CustomerId

PAGES_A_SLICE = 16_384
"""128 MB: some seconds of reading."""
PAGES_OF_A_QUERY = 8
"""What asking a tenant costs besides reading, in pages."""


@dataclass(frozen=True, slots=True)
class TableSize:
    """A tenant's table and how many pages the catalogue believes that it has."""

    customer_id: CustomerId
    pages: int


@dataclass(frozen=True, slots=True)
class Slice:
    """A tenant's table, or some of its pages: from the first up to, not including, the last; None: to its end."""

    customer_id: CustomerId
    first_page: int = 0
    end_page: int | None = None
    weight: int = PAGES_OF_A_QUERY

    @property
    def is_whole(self) -> bool:
        return self.first_page == 0 and self.end_page is None


def cut(table: TableSize, *, pages_a_slice: int = PAGES_A_SLICE) -> list[Slice]:
    """Ranges of about equal length. The last one has no end: the table may have grown since it was measured."""
    count = max(1, -(-table.pages // pages_a_slice))
    bounds = [table.pages * number // count for number in range(count)]
    slices = []
    for number, first in enumerate(bounds):
        end = bounds[number + 1] if number + 1 < count else None
        pages = (table.pages if end is None else end) - first
        slices.append(Slice(table.customer_id, first, end, max(pages, 0) + PAGES_OF_A_QUERY))
    return slices


def pack(slices: Iterable[Slice], partitions: int) -> list[list[Slice]]:
    """At most `partitions` packs of about equal weight: each slice, heaviest first, goes to the lightest pack."""
    packs: list[list[Slice]] = [[] for _ in range(partitions)]
    lightest = [(0, number) for number in range(partitions)]
    for one in sorted(slices, key=lambda one: (-one.weight, one.customer_id, one.first_page)):
        weight, number = heapq.heappop(lightest)
        packs[number].append(one)
        heapq.heappush(lightest, (weight + one.weight, number))
    return [sorted(found, key=lambda one: (one.customer_id, one.first_page)) for found in packs if found]


def plan(
    tables: Sequence[TableSize], partitions: int, *, sliceable: bool, pages_a_slice: int = PAGES_A_SLICE
) -> list[list[Slice]]:
    """The packs of a read. A query that is not sliceable (an aggregate) takes each tenant as a whole."""
    if sliceable:
        return pack((one for table in tables for one in cut(table, pages_a_slice=pages_a_slice)), partitions)
    whole = (Slice(table.customer_id, weight=max(table.pages, 0) + PAGES_OF_A_QUERY) for table in tables)
    return pack(whole, partitions)
