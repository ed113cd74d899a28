"""How a read of many tenants is cut: large tables into ranges, small ones together, every page once."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from clientmgr.base.customer_ids import CustomerId
from clientmgr_dagster.spark.packing import LargeTable, Slice, TableSize, cut, pack, plan

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
