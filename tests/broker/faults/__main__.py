"""`make soak`: rounds of faults, at the tail and on a backlog in turns. The first finding ends it."""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psycopg

from clientmgr.base.database import Database
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.operations.migrations import migrate_database
from tests.broker.faults.harness import Report, Run
from tests.broker.faults.scenario import Faults, Scenario
from tests.conftest import TEST_TUNING

FAULTS = Faults(consumer_kills=200, publisher_kills=80, terminated_backends=80, server_restarts=6, pauses=40, trims=10)


def scenario_of_round(number: int, seed: int) -> Scenario:
    if number % 2:
        return Scenario(seed=seed, at_tail=True, messages=80_000, faults=FAULTS, publisher_pause_s=0.02)
    return Scenario(seed=seed, at_tail=False, messages=100_000, faults=FAULTS)


def run_round(number: int, seed: int, server: EmbeddedPostgres, folder: Path) -> Report:
    name = f"round_{number}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    database = Database(server.url(name))
    migrate_database(database)
    report = Run(scenario_of_round(number, seed), database, folder, server).to_the_end()
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    return report


def soak(minutes: float, seed: int) -> bool:
    """Whether nothing was found."""
    seeds = random.Random(seed)
    deadline = time.monotonic() + 60.0 * minutes
    total, number = Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        server = EmbeddedPostgres(folder / "postgres", tuning=TEST_TUNING)
        server.start()
        try:
            while time.monotonic() < deadline:
                number += 1
                report = run_round(number, seeds.getrandbits(31), server, folder)
                total += report.injected + Counter(messages=report.tally.messages)
                print(f"round {number}, {report}", flush=True)
                print("so far:", ", ".join(f"{count} {what}" for what, count in sorted(total.items())), flush=True)
                if report.findings:
                    return False
        finally:
            server.stop()
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no new round after this (60)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="to repeat a run's schedule")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    sys.exit(0 if soak(arguments.minutes, arguments.seed) else 1)


if __name__ == "__main__":
    main()
