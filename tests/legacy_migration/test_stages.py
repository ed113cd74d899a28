"""How far a customer may go on its way out of the legacy store, and what its flippers are there. Pure."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from clientmgr.legacy_migration.stages import (
    FLIPPERS,
    ORDER,
    Comparison,
    FallbackAnswers,
    Limits,
    Stage,
    earlier_stages,
    stage_after_check,
    stage_by_flippers,
    why_not_further,
)
from clientmgr.tenants.flippers import Flipper, Flippers

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
LIMITS = Limits(timedelta(hours=48), max_fallback_share=0.01)
SAME = Comparison(imported_at=NOW, checked_at=NOW - timedelta(hours=1))
QUIET = FallbackAnswers(contacts=1000, from_fallback=10)


def why_not(stage: Stage, comparison: Comparison = SAME, fallback: FallbackAnswers = QUIET) -> str | None:
    return why_not_further(stage, comparison, fallback, LIMITS, NOW)


def test_with_a_fresh_comparison_that_found_nothing_every_stage_but_the_last_goes_on() -> None:
    assert [why_not(stage) for stage in ORDER[:-1]] == [None] * 4
    assert why_not(Stage.POSTGRES_ONLY) == "it has left the legacy store already"


@pytest.mark.parametrize("stage", [Stage.IMPORTING, Stage.IN_SYNC, Stage.POSTGRES_WITH_FALLBACK])
@pytest.mark.parametrize(
    ("comparison", "reason"),
    [
        (Comparison(), "not been imported"),
        (Comparison(imported_at=NOW), "not been imported and compared"),
        (replace(SAME, different=3), "3 devices"),
        (replace(SAME, rejected=2), "2 items"),
        (replace(SAME, checked_at=NOW - timedelta(hours=49)), "older than 48 hours"),
    ],
)
def test_nobody_goes_further_than_the_comparison_allows(stage: Stage, comparison: Comparison, reason: str) -> None:
    assert reason in str(why_not(stage, comparison))


def test_nobody_leaves_the_fallback_while_it_still_answers() -> None:
    busy = FallbackAnswers(contacts=1000, from_fallback=11)
    assert "11 of 1000 contacts" in str(why_not(Stage.POSTGRES_WITH_FALLBACK, fallback=busy))
    assert why_not(Stage.IN_SYNC, fallback=busy) is None
    assert why_not(Stage.POSTGRES_WITH_FALLBACK, fallback=FallbackAnswers()) is None


@pytest.mark.parametrize("stage", Stage)
def test_the_mapper_reads_the_legacy_store_in_every_stage_but_the_last(stage: Stage) -> None:
    flippers = Flippers((name, 7, enabled) for name, enabled in FLIPPERS[stage].items())
    reads_legacy = flippers.legacy_store_is_read(7, fallback_enabled=True)  # type: ignore[arg-type]
    assert reads_legacy is (stage is not Stage.POSTGRES_ONLY)
    reads_postgres = stage in (Stage.POSTGRES_WITH_FALLBACK, Stage.POSTGRES_ONLY)
    assert FLIPPERS[stage][Flipper.USE_POSTGRES_DEVICE_MAPPER] is reads_postgres


def test_who_was_never_started_is_where_its_flippers_say() -> None:
    found = {stage_by_flippers(FLIPPERS[stage]) for stage in Stage}
    assert found == {Stage.LEGACY, Stage.POSTGRES_WITH_FALLBACK, Stage.POSTGRES_ONLY}


def test_a_comparison_takes_a_customer_to_in_sync_and_back_and_never_changes_where_the_mapper_reads() -> None:
    apart = replace(SAME, different=1)
    assert stage_after_check(Stage.IMPORTING, SAME) is Stage.IN_SYNC
    assert stage_after_check(Stage.IN_SYNC, apart) is Stage.IMPORTING
    assert {stage_after_check(Stage.IMPORTING, one) for one in (apart, Comparison())} == {Stage.IMPORTING}
    for stage in Stage:
        for comparison in (SAME, apart, Comparison()):
            assert FLIPPERS[stage_after_check(stage, comparison)] == FLIPPERS[stage]


def test_back_goes_to_any_earlier_stage() -> None:
    assert earlier_stages(Stage.LEGACY) == ()
    assert earlier_stages(Stage.IN_SYNC) == (Stage.IMPORTING, Stage.LEGACY)
