"""Which orphans may go: the guard and the exclusion list."""

from datetime import UTC, datetime, timedelta

import pytest

from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import load_settings
from clientmgr.orphans.policy import OrphanPolicy, parse_customers


def test_the_settings_make_the_policy() -> None:
    policy = OrphanPolicy.from_settings(load_settings(orphan_threshold_days=7, orphan_excluded_customers="3, 14"))

    assert policy.excluded == {3, 14}
    assert policy.orphaned_before(datetime(2026, 1, 8, tzinfo=UTC)) == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("candidates", "devices", "guarded"),
    [(100, 100, False), (101, 101, True), (101, 202, False), (102, 203, True), (10**6, 10**7, False)],
)
def test_a_tenant_that_would_lose_too_large_a_share_is_guarded_unless_it_is_small(
    candidates: int, devices: int, guarded: bool
) -> None:
    policy = OrphanPolicy(timedelta(days=30), max_share=0.5, guard_minimum=100)

    assert policy.is_guarded(candidates, devices) is guarded


def test_a_customer_that_is_none_is_refused_by_the_settings_name() -> None:
    with pytest.raises(InvalidInputError, match="ORPHAN_EXCLUDED_CUSTOMERS"):
        parse_customers("3,x")
