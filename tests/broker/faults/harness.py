"""Runs a scenario: publishers and consumers as real processes, faults at random moments, then the verdict.

Faults are spread over the run by its progress, not by the clock: a slow machine sees as many of them as a quick one.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import load_settings
from clientmgr.broker.postgres.retention import trim
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from tests.broker.faults.check import Finding, Tally, Violation, find_violations, install_schema, read_tally
from tests.broker.faults.crew import POLL_S, Crew
from tests.broker.faults.mutants import MUTANTS
from tests.broker.faults.observer import Observer
from tests.broker.faults.scenario import ECHO_TOPIC, GROUP, TOPIC, Faults, Scenario

# What is drained after this is late.
DRAIN_WITHIN_S = 60.0
# No progress for this long is no slow machine any more.
STALLED_S = 30.0
# A fault comes at a random moment of whatever is going on.
LONGEST_WAIT_BEFORE_FAULT_S = 0.03


@dataclass(frozen=True)
class Report:
    """What happened in a run."""

    scenario: Scenario
    injected: Counter[str]
    tally: Tally
    findings: Sequence[Finding]
    drained_s: float
    seconds: float

    @property
    def violations(self) -> set[Violation]:
        return {finding.violation for finding in self.findings}

    def __str__(self) -> str:
        mode = "at the tail" if self.scenario.at_tail else "on a backlog"
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.injected.items()))
        found = "; ".join(map(str, self.findings)) or "nothing wrong"
        return (
            f"{mode}, seed {self.scenario.seed}: {found}\n  {self.tally}\n  {faults}\n"
            f"  drained in {self.drained_s:.1f} s, {self.seconds:.1f} s in all"
        )


class Run:
    """One run on a migrated database. `server` is needed only to restart it."""

    def __init__(
        self, scenario: Scenario, database: Database, folder: Path, server: EmbeddedPostgres | None = None
    ) -> None:
        self._scenario = scenario
        self._database = database
        self._server = server
        self._rng = random.Random(scenario.seed)
        self._crew = Crew(scenario, database.url, folder, self._rng)
        self._observer = Observer(database)

    def to_the_end(self) -> Report:
        """All faults, then the drain, then the verdict."""
        started = time.monotonic()
        self._prepare()
        with closing(self._observer), self._crew:
            try:
                self._publish_and_consume()
                faults_ended = time.monotonic()
                self._wait_until(lambda: self._observer.unread() == 0, DRAIN_WITHIN_S, "drained")
                drained_s = time.monotonic() - faults_ended
                self._crew.end(self._crew.consumers)
            except AssertionError as error:
                raise AssertionError(self._explain(str(error))) from error
            return self._report(find_violations(self._database.url), started, drained_s)

    def until_caught(self, violation: Violation, deadline_s: float) -> Report:
        """Everything at the tail, and faults over and over, until the check finds `violation` or time is up."""
        started = time.monotonic()
        self._prepare()
        findings: list[Finding] = []
        with closing(self._observer), self._crew:
            self._crew.start(self._crew.publishers)
            self._crew.start(self._crew.consumers)
            while time.monotonic() < started + deadline_s:
                self._spread(self._shuffled(self._scenario.faults), self._observer.handled, self._scenario.messages)
                findings = find_violations(self._database.url)
                if any(finding.violation is violation for finding in findings):
                    break
            return self._report(findings, started, drained_s=0.0)

    def _prepare(self) -> None:
        with self._database.connect(Role.OWNER) as connection:
            install_schema(connection)
            if self._scenario.mutant is not None:
                MUTANTS[self._scenario.mutant].change_database(connection)
        asyncio.run(self._make_topics())

    async def _make_topics(self) -> None:
        settings = load_settings(database_url=self._database.url, broker_total_partitions=self._scenario.partitions)
        async with PostgresBroker(self._database, settings) as broker:
            for topic in (TOPIC, ECHO_TOPIC):
                await broker.ensure_topic(topic)
            await broker.ensure_subscription(GROUP, TOPIC)

    def _publish_and_consume(self) -> None:
        crew, messages = self._crew, self._scenario.messages
        crew.start(crew.publishers)
        if self._scenario.at_tail:
            crew.start(crew.consumers)
            self._spread(self._shuffled(self._scenario.faults), self._observer.handled, messages)
            crew.end(crew.publishers)
        else:
            while_publishing, while_consuming = self._scenario.faults.by_phase()
            self._spread(self._shuffled(while_publishing), self._observer.published, messages)
            crew.end(crew.publishers)
            crew.start(crew.consumers)
            self._spread(self._shuffled(while_consuming), self._observer.handled, messages)
        crew.continue_all()

    def _shuffled(self, faults: Faults) -> list[Callable[[], None]]:
        crew = self._crew
        actions: list[Callable[[], None]] = [
            *[lambda: crew.kill(crew.consumers)] * faults.consumer_kills,
            *[lambda: crew.kill(crew.publishers)] * faults.publisher_kills,
            *[self._terminate_a_backend] * faults.terminated_backends,
            *[self._restart_server] * faults.server_restarts,
            *[crew.pause_someone] * faults.pauses,
            *[self._trim] * faults.trims,
        ]
        self._rng.shuffle(actions)
        return actions

    def _spread(self, faults: Sequence[Callable[[], None]], progress: Callable[[], int], total: int) -> None:
        """Do `faults` one after the other, evenly over `total` steps of progress."""
        begin = progress()
        for place, fault in enumerate(faults, start=1):
            self._wait_for_progress(progress, begin + place * total // (len(faults) + 1))
            time.sleep(self._rng.uniform(0.0, LONGEST_WAIT_BEFORE_FAULT_S))
            fault()
        self._wait_for_progress(progress, begin + total)

    def _terminate_a_backend(self) -> None:
        self._wait_until(lambda: self._observer.terminate_a_backend(self._rng), STALLED_S, "terminated a backend")
        self._crew.injected["backends terminated"] += 1

    def _restart_server(self) -> None:
        assert self._server is not None, "this run has no server of its own"
        self._server.crash()
        self._server.restart_on_same_port()
        self._crew.injected["server restarts"] += 1

    def _trim(self) -> None:
        async def trim_what_is_read() -> None:
            async with await self._database.connect_async(Role.WRITER, autocommit=True) as connection:
                await trim(connection, retention_hours=0.0, topic=TOPIC)

        asyncio.run(trim_what_is_read())
        self._crew.injected["trims"] += 1

    def _wait_for_progress(self, progress: Callable[[], int], goal: int) -> None:
        best, moved_at = progress(), time.monotonic()
        while best < goal:
            time.sleep(POLL_S)
            self._crew.look_after()
            if (now := progress()) > best:
                best, moved_at = now, time.monotonic()
            elif time.monotonic() > moved_at + STALLED_S:
                raise AssertionError(f"no progress for {STALLED_S:.0f} s")

    def _wait_until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not {what} within {seconds:.0f} s")
            time.sleep(10 * POLL_S)
            self._crew.look_after()

    def _explain(self, what: str) -> str:
        found = "; ".join(map(str, find_violations(self._database.url))) or "nothing wrong so far"
        return "\n".join([f"seed {self._scenario.seed}: {what} ({found})", *self._crew.last_words()])

    def _report(self, findings: Sequence[Finding], started: float, drained_s: float) -> Report:
        tally = read_tally(self._database.url)
        return Report(self._scenario, self._crew.injected, tally, findings, drained_s, time.monotonic() - started)
