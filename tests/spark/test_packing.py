"""How a read of many tenants is cut: large tables into ranges, small ones together, every page once."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from clientmgr.base.customer_ids import CustomerId
from clientmgr_dagster.spark.packing import LargeTable, Place, Slice, TableSize, cut, pack, plan

contact_bounds = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20).map(lambda found: tuple(sorted(found)))
tables = st.lists(
    st.builds(LargeTable, st.integers(1, 10**6).map(CustomerId), st.integers(0, 5000), st.just(7), contact_bounds),
    unique_by=lambda table: table.customer_id,
    max_size=8,
)


@given(tables, st.integers(1, 12))
def test_every_page_and_every_contact_is_in_exactly_one_slice(found: list[LargeTable], partitions: int) -> None:
    small = TableSize(CustomerId(10**6 + 1), 3)
    sizes = [*(TableSize(table.customer_id, table.pages) for table in found), small]
    packs = plan(sizes, found, partitions, pages_a_slice=100)

    assert len(packs) <= partitions
    slices = [one for one_pack in packs for one in one_pack]
    assert [one for one in slices if one.is_whole] == [Slice(small.customer_id, weight=11)]
    for table in found:
        own = sorted((one for one in slices if one.customer_id == table.customer_id), key=lambda one: one.first_page)
        assert own[0].first_page == 0
        assert (own[0].first_contact, own[-1].end_contact) == (None, None)
        assert own[-1].end_page is None, "the table may have grown"
        for one, following in itertools.pairwise(own):
            assert one.end_page == following.first_page
            assert one.end_contact == following.first_contact is not None
            assert one.first_contact is None or one.first_contact <= following.first_contact


def test_a_huge_tenant_does_not_make_a_task_of_its_own_that_all_wait_for() -> None:
    huge = LargeTable(CustomerId(1), 1_000_000)
    found = [TableSize(huge.customer_id, huge.pages), *(TableSize(CustomerId(n), 10) for n in range(2, 200))]

    packs = plan(found, [huge], 8, pages_a_slice=16_384)

    weights = [sum(one.weight for one in one_pack) for one_pack in packs]

    assert max(weights) < 1.15 * min(weights)


def test_without_statistics_one_slice_takes_all_contacts() -> None:
    first, second, last = cut(LargeTable(CustomerId(1), 300), pages_a_slice=100)

    assert (first.first_contact, first.end_contact) == (None, 2**63 - 1)
    assert second.first_contact == second.end_contact == last.first_contact


def test_nothing_to_read_makes_no_packs() -> None:
    assert pack([], 4) == []


def of_node(node: str, tenants: range, pages: int = 10) -> list[TableSize]:
    return [TableSize(CustomerId(tenant), pages, Place(node)) for tenant in tenants]


def nodes_of(packs: list[list[Slice]]) -> list[str]:
    assert all(len({one.place.node for one in one_pack}) == 1 for one_pack in packs), "a pack is of one node"
    return [one_pack[0].place.node for one_pack in packs]


def test_on_a_cluster_each_pack_is_of_one_node_and_nodes_come_in_turn() -> None:
    found = [*of_node("a:1", range(1, 40)), *of_node("b:1", range(40, 80)), *of_node("c:1", range(80, 120))]

    packs = plan(found, [], 6, pages_a_slice=100)

    assert nodes_of(packs) == ["a:1", "b:1", "c:1", "a:1", "b:1", "c:1"]
    assert sorted(one.customer_id for one_pack in packs for one in one_pack) == list(range(1, 120))


def test_a_node_with_more_work_has_more_packs_and_none_has_none() -> None:
    large = LargeTable(CustomerId(1), 100_000, place=Place("a:1", (("devices", 102008),), "moment"))
    found = [TableSize(large.customer_id, large.pages, Place("a:1")), *of_node("b:1", range(2, 10))]

    packs = plan(found, [large], 8, pages_a_slice=1_000)

    assert sorted(nodes_of(packs)) == ["a:1"] * 7 + ["b:1"]
    assert {one.place for one_pack in packs for one in one_pack if not one.is_whole} == {large.place}
    assert len(plan(found, [large], 1, pages_a_slice=1_000)) == 2
