"""Customers who are still read from the legacy store have no orphans, whenever that is found out."""

from dataclasses import replace
from typing import Any

import pytest

from clientmgr.orphans.deletion import OrphanDeletion
from clientmgr.orphans.policy import Outcome
from clientmgr.tenants.flippers import Flipper
from tests.orphans.rig import ONE, POLICY, TWO, Rig

USE_POSTGRES = Flipper.USE_POSTGRES_DEVICE_MAPPER
NO_FALLBACK = Flipper.CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER


@pytest.mark.parametrize("flipper", [USE_POSTGRES, NO_FALLBACK])
@pytest.mark.parametrize("dry_run", [False, True], ids=["for real", "a dry run"])
def test_a_customer_that_the_mapper_may_read_from_dynamodb_loses_nothing(
    rig: Rig, flipper: Flipper, dry_run: bool
) -> None:
    rig.fill(ONE)
    rig.fill(TWO)
    rig.flip(flipper, on=False, customer=ONE)

    legacy, other = rig.run(ONE, TWO, policy=replace(POLICY, dry_run=dry_run))

    assert (legacy.outcome, legacy.deleted) == (Outcome.LEGACY, 0)
    assert len(rig.clients(ONE)) == 20
    assert other.deleted == 10
    assert rig.query("SELECT outcome FROM clientmgr.orphan_deletion_results WHERE customer_id = 1") == [("legacy",)]


def test_without_any_flipper_everybody_is_read_from_dynamodb(rig: Rig) -> None:
    rig.fill(ONE)
    rig.query("DELETE FROM clientmgr.flippers")

    assert [result.outcome for result in rig.run(ONE)] == [Outcome.LEGACY]


def test_where_the_legacy_store_is_turned_off_for_all_flippers_do_not_matter(rig: Rig) -> None:
    rig.fill(ONE)
    rig.query("DELETE FROM clientmgr.flippers")

    assert [result.deleted for result in rig.run(ONE, policy=replace(POLICY, fallback_enabled=False))] == [10]


def test_a_flipper_that_changes_between_two_batches_stops_the_deletion(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.fill(ONE)
    original = OrphanDeletion._delete_batch

    def then_back_to_dynamodb(self: OrphanDeletion, *arguments: Any) -> Outcome | None:
        outcome = original(self, *arguments)
        rig.flip(USE_POSTGRES, on=False, customer=ONE)
        return outcome

    monkeypatch.setattr(OrphanDeletion, "_delete_batch", then_back_to_dynamodb)

    (result,) = rig.run(ONE)

    assert (result.outcome, result.deleted) == (Outcome.LEGACY, POLICY.batch_size)
    assert len(rig.clients(ONE)) == 20 - POLICY.batch_size
