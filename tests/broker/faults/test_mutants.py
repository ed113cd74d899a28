"""A harness that can't fail proves nothing: each broken variant is caught, by name, and the real one passes."""

from pathlib import Path

import pytest

from clientmgr.base.database import Database
from tests.broker.faults.harness import Run
from tests.broker.faults.mutants import KILLS_ONLY, MUTANTS
from tests.broker.faults.scenario import Faults, Scenario

CATCH_WITHIN_S = 90.0


def small_scenario(mutant: str | None, messages: int) -> Scenario:
    return Scenario(
        seed=3,
        at_tail=True,
        messages=messages,
        faults=Faults(consumer_kills=4, publisher_kills=1, terminated_backends=1),
        chances=KILLS_ONLY if mutant is None else MUTANTS[mutant].chances,
        publisher_pause_s=0.01,
        # Few, so that processes often meet in one.
        partitions=4,
        tenants=8,
        slow_commit_s=0.3,
        mutant=mutant,
    )


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.found_as is not None])
def test_a_broken_variant_is_caught(name: str, database: Database, tmp_path: Path) -> None:
    expected = MUTANTS[name].found_as
    assert expected is not None
    report = Run(small_scenario(name, 500), database, tmp_path).until_caught(expected, CATCH_WITHIN_S)
    print(report)
    assert expected in report.violations, str(report)


@pytest.mark.parametrize("name", [None, *(name for name, mutant in MUTANTS.items() if mutant.found_as is None)])
def test_a_sound_variant_passes_with_the_same_settings(name: str | None, database: Database, tmp_path: Path) -> None:
    report = Run(small_scenario(name, 2500), database, tmp_path).to_the_end()
    print(report)
    assert not report.findings, str(report)
