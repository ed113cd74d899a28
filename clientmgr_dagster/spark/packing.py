"""How a read of many tenants is cut into Spark's partitions. Pure.

One partition per tenant would cost more than the work (200 of them three times what eight do), one for a huge tenant
would keep the others waiting. So a large table is cut into ranges of its pages, and the pieces are packed. On a cluster
a pack is of one node, and packs of all nodes come in turn: all nodes work at once.
"""

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clientmgr.base.customer_ids import CustomerId

LARGEST_CONTACT = 2**63 - 1
PAGES_OF_A_QUERY = 8
"""What asking a tenant costs besides reading, in pages."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which server is asked. Without anything: the one that the connection string names, by the tables' own names."""

    node: str = ""
    """Host and port of a cluster's node that has the tenant and can be asked directly."""
    shards: tuple[tuple[str, int], ...] = ()
    """Of a table that is cut: the tenant's tables and the numbers of the shards that hold them on the node."""
    snapshot: str = ""
    """Of a table that is cut: the node's own name of the moment. Empty: the read's (`Snapshot.id`)."""


HERE: Final = Place()


@dataclass(frozen=True, slots=True)
class TableSize:
    """A tenant's table and how many pages the catalogue believes that it has."""

    customer_id: CustomerId
    pages: int
    place: Place = HERE


@dataclass(frozen=True, slots=True)
class LargeTable:
    """A table that is to be cut: what it is known by, and values that cut its contacts into parts of equal length."""

    customer_id: CustomerId
    pages: int
    filenode: int = 0
    contact_bounds: tuple[int, ...] = ()
    """As the server's statistics have them, ascending; none: one slice takes all contacts."""
    place: Place = HERE


@dataclass(frozen=True, slots=True)
class Slice:
    """A tenant's table, or a range of its pages with a range of its contacts, neither of which another slice has.

    Rows are read by pages, and distinct contacts by contacts: a contact's devices may stand on any page. Ranges go
    from the first up to, not including, the end; None: without an end.
    """

    customer_id: CustomerId
    first_page: int = 0
    end_page: int | None = None
    first_contact: int | None = None
    end_contact: int | None = None
    weight: int = PAGES_OF_A_QUERY
    filenode: int | None = None
    """The file whose pages are meant; None: all of the table is, and that is no slice."""
    place: Place = HERE

    @property
    def is_whole(self) -> bool:
        return self.filenode is None


def cut(table: LargeTable, *, pages_a_slice: int) -> list[Slice]:
    """Ranges of about equal length. The last has no end: the table may have grown since it was measured."""
    count = max(1, -(-table.pages // pages_a_slice))
    pages = [table.pages * number // count for number in range(count)]
    bounds = table.contact_bounds
    # From the beginning, then at bounds, then to the end: every contact is in one range, and ranges may be empty.
    between = [bounds[len(bounds) * number // count] if bounds else LARGEST_CONTACT for number in range(1, count)]
    contacts: list[int | None] = [None, *between, None]
    slices = []
    for number, first in enumerate(pages):
        end = pages[number + 1] if number + 1 < count else None
        weight = max((table.pages if end is None else end) - first, 0) + PAGES_OF_A_QUERY
        slices.append(
            Slice(
                table.customer_id,
                first,
                end,
                contacts[number],
                contacts[number + 1],
                weight,
                table.filenode,
                table.place,
            )
        )
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
    tables: Sequence[TableSize], large: Sequence[LargeTable], partitions: int, *, pages_a_slice: int
) -> list[list[Slice]]:
    """The packs of a read. Those of `large` are cut, the others are taken as a whole."""
    cut_up = {table.customer_id: table for table in large}
    slices: list[Slice] = []
    for table in tables:
        if table.customer_id in cut_up:
            slices += cut(cut_up[table.customer_id], pages_a_slice=pages_a_slice)
        else:
            weight = max(table.pages, 0) + PAGES_OF_A_QUERY
            slices.append(Slice(table.customer_id, weight=weight, place=table.place))
    return pack_by_node(slices, partitions)


def pack_by_node(slices: Iterable[Slice], partitions: int) -> list[list[Slice]]:
    """Packs that have slices of one node each, the nodes in turn. Each node has one at least, the busiest have more."""
    by_node: dict[str, list[Slice]] = {}
    for one in slices:
        by_node.setdefault(one.place.node, []).append(one)
    shares = _share_out({node: sum(one.weight for one in own) for node, own in by_node.items()}, partitions)
    packs = [pack(own, shares[node]) for node, own in sorted(by_node.items())]
    return [one for turn in itertools.zip_longest(*packs) for one in turn if one is not None]


def _share_out(weights: Mapping[str, int], partitions: int) -> dict[str, int]:
    """So that the heaviest pack is as light as can be."""
    shares = dict.fromkeys(weights, 1)
    heaviest = [(-float(weight), node) for node, weight in weights.items()]
    heapq.heapify(heaviest)
    for _ in range(partitions - len(shares) if shares else 0):
        _, node = heapq.heappop(heaviest)
        shares[node] += 1
        heapq.heappush(heaviest, (-weights[node] / shares[node], node))
    return shares
