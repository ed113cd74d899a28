"""How a read of many tenants is cut: large tables into ranges, small ones together, every page once."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from clientmgr.base.customer_ids import CustomerId
from clientmgr_dagster.spark.packing import Slice, TableSize, cut, pack, plan

tables = st.lists(
    st.builds(TableSize, st.integers(1, 10**6).map(CustomerId), st.integers(0, 5000)),
    unique_by=lambda table: table.customer_id,
    max_size=60,
)


@given(tables, st.integers(1, 12))
def test_every_page_of_every_table_is_in_exactly_one_pack(found: list[TableSize], partitions: int) -> None:
    packs = plan(found, partitions, sliceable=True, pages_a_slice=100)

    assert len(packs) <= partitions
    for table in found:
        ranges = sorted(
            (one.first_page, one.end_page)
            for one_pack in packs
            for one in one_pack
            if one.customer_id == table.customer_id
        )
        assert ranges[0][0] == 0
        assert ranges[-1][1] is None, "the table may have grown"
        for (_, end), (start, _) in itertools.pairwise(ranges):
            assert end == start


def test_a_huge_tenant_does_not_make_a_task_of_its_own_that_all_wait_for() -> None:
    found = [TableSize(CustomerId(1), 1_000_000), *(TableSize(CustomerId(n), 10) for n in range(2, 200))]

    weights = [sum(one.weight for one in one_pack) for one_pack in plan(found, 8, sliceable=True)]

    assert max(weights) < 1.15 * min(weights)


def test_an_aggregate_takes_each_tenant_as_a_whole() -> None:
    packs = plan([TableSize(CustomerId(1), 10**6), TableSize(CustomerId(2), 1)], 4, sliceable=False)

    assert all(one.is_whole for one_pack in packs for one in one_pack)


def test_a_small_table_is_not_cut() -> None:
    assert cut(TableSize(CustomerId(1), 0)) == [Slice(CustomerId(1))]


def test_nothing_to_read_makes_no_packs() -> None:
    assert pack([], 4) == []
