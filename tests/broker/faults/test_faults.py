"""Whatever is killed, cut off, stopped or restarted: nothing is lost, doubled, reordered or split."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clientmgr.base.database import Database
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.operations.migrations import migrate_database
from tests.broker.faults.harness import Report, Run
from tests.broker.faults.scenario import Chances, Faults, Scenario
from tests.conftest import TEST_TUNING

pytestmark = pytest.mark.server

FAULTS = Faults(consumer_kills=50, publisher_kills=20, terminated_backends=20, server_restarts=2, pauses=10, trims=3)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """One that may be crashed."""
    server = EmbeddedPostgres(tmp_path / "postgres", tuning=TEST_TUNING)
    server.start()
    yield server
    server.stop()


def run(scenario: Scenario, server: EmbeddedPostgres, folder: Path) -> Report:
    database = Database(server.url())
    migrate_database(database)
    report = Run(scenario, database, folder, server).to_the_end()
    print(report)
    return report


def assert_nothing_wrong_in_spite_of_everything(report: Report) -> None:
    assert not report.findings, str(report)
    tally, injected = report.tally, report.injected
    assert tally.handled + tally.dead == tally.messages
    assert tally.dead > 0
    assert tally.retried > 0
    assert tally.rolled_back > 0
    assert tally.slow_commits > 0
    assert tally.transient_failures > 0
    assert injected["consumers killed"] >= 50
    assert injected["publishers killed"] >= 20
    assert injected["backends terminated"] >= 20
    assert injected["server restarts"] >= 2
    assert injected["stopped for a while"] >= 10


def test_a_backlog_is_read_exactly_once_and_in_order_whatever_dies(
    own_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    report = run(Scenario(seed=1, at_tail=False, messages=40_000, faults=FAULTS), own_server, tmp_path)
    assert_nothing_wrong_in_spite_of_everything(report)


def test_the_tail_is_read_exactly_once_and_in_order_whatever_dies(own_server: EmbeddedPostgres, tmp_path: Path) -> None:
    scenario = Scenario(
        seed=2,
        at_tail=True,
        messages=20_000,
        faults=FAULTS,
        chances=Chances(poison=0.02),  # fewer transactions than in the backlog, and some of them are to be poison
        publisher_pause_s=0.02,
    )
    assert_nothing_wrong_in_spite_of_everything(run(scenario, own_server, tmp_path))
