"""Which new tenants are better off on another node of a cluster."""

from clientmgr.base.customer_ids import CustomerId
from clientmgr.tenants.emptiest_node import TENANT_WEIGHS, better_places
from clientmgr.tenants.placement import Node, Place


def node(group: int, *, is_active: bool = True, takes_tenants: bool = True) -> Node:
    return Node(group, group, "db", 5432 + group, is_active, takes_tenants)


def places(*groups: int) -> list[Place]:
    """Tenants 1, 2, … on these nodes."""
    return [Place(CustomerId(number), group, is_distributed=True) for number, group in enumerate(groups, 1)]


def moved(nodes: list[Node], lie: list[Place], new: set[int], **sizes: int) -> dict[int, int]:
    bytes_of = {CustomerId(int(name.removeprefix("t"))): size for name, size in sizes.items()}
    created = {CustomerId(one) for one in new}
    return {place.customer_id: target.group for place, target in better_places(nodes, lie, bytes_of, created)}


def test_where_all_is_even_nobody_moves() -> None:
    assert moved([node(1), node(2)], places(1, 2, 1, 2), {3, 4}) == {}
    assert moved([node(1), node(2)], places(1, 2, 1), {3}) == {}, "one more is even enough"


def test_new_tenants_go_to_the_node_that_has_least_and_count_there() -> None:
    lie = places(1, 2, 1, 2, 1, 2)
    assert moved([node(1), node(2)], lie, {3, 4, 5, 6}, t1=10 * TENANT_WEIGHS) == {3: 2, 5: 2}
    # A node that has just been added takes new ones until it has as many as the others.
    assert moved([node(1), node(2), node(3)], lie, {3, 4, 5, 6}) == {3: 3, 4: 3}


def test_large_nodes_that_differ_by_less_than_a_tenth_are_even_enough() -> None:
    terabyte, new = 10**12, {3, 4, 5, 6}
    lie = places(1, 2, 1, 2, 1, 2)
    assert moved([node(1), node(2)], lie, new, t1=terabyte, t2=terabyte * 91 // 100) == {}
    assert moved([node(1), node(2)], lie, new, t1=terabyte, t2=terabyte * 89 // 100) == {3: 2, 5: 2}


def test_tenants_that_were_there_stay() -> None:
    assert moved([node(1), node(2)], places(1, 1, 1, 1), set()) == {}


def test_nodes_that_take_no_tenants_are_no_choice() -> None:
    assert moved([node(1), node(2, takes_tenants=False), node(3, is_active=False)], places(1, 1, 1), {2, 3}) == {}
    assert moved([node(1), node(2, takes_tenants=False)], places(1, 2), {2}) == {}, "and who is there stays"
