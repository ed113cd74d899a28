"""The publishers and consumers of a run: start, kill, stop for a while, end, and notice who is missing."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from types import TracebackType
from typing import Literal, Self

from tests.broker.faults.launcher import Launcher
from tests.broker.faults.scenario import Scenario, Task

PAUSED_S = (0.2, 2.0)
END_WITHIN_S = 30.0
POLL_S = 0.005


class CrewError(AssertionError):
    """A process ended that should not have, or would not end."""


@dataclass
class Member:
    """A place that a process fills, and another one after it was killed."""

    role: Literal["consumer", "publisher"]
    number: int
    lives: int = 0
    pid: int = 0
    """0: not running."""
    continue_at: float | None = None
    """Set while it is stopped."""

    @property
    def name(self) -> str:
        return f"{self.role} {self.number}"


class Crew:
    """Use it as `with`: whoever is left at the end is killed."""

    def __init__(self, scenario: Scenario, url: str, folder: Path, rng: random.Random) -> None:
        self.publishers = [Member("publisher", number) for number in range(scenario.publishers)]
        self.consumers = [Member("consumer", number) for number in range(scenario.consumers)]
        self.injected = Counter[str]()
        self._scenario = scenario
        self._url = url
        self._folder = folder
        self._rng = rng
        self._launcher = Launcher(folder)

    def __enter__(self) -> Self:
        self._launcher.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._launcher.__exit__(kind, error, trace)

    def start(self, members: Sequence[Member]) -> None:
        for member in members:
            member.lives += 1
            member.continue_at = None
            member.pid = self._launcher.start(
                Task(
                    role=member.role,
                    name=member.name,
                    seed=f"{self._scenario.seed}/{member.name}/{member.lives}",
                    url=self._url,
                    log_file=str(self._folder / f"{member.role}-{member.number}.log"),
                    scenario=self._scenario,
                )
            )

    def kill(self, members: Sequence[Member]) -> None:
        """SIGKILL for one of them, and a new process in its place."""
        member = self._rng.choice(members)
        self.injected[f"{member.role}s killed"] += self._launcher.send(member.pid, SIGKILL)
        self.start([member])

    def pause_someone(self) -> None:
        running = [member for member in self._all() if member.pid and member.continue_at is None]
        if running:
            member = self._rng.choice(running)
            member.continue_at = time.monotonic() + self._rng.uniform(*PAUSED_S)
            self.injected["stopped for a while"] += self._launcher.send(member.pid, SIGSTOP)

    def look_after(self) -> None:
        """Let those go on whose pause is over. Raises if somebody has ended by itself."""
        self._continue(time.monotonic())
        for pid, code in self._launcher.exits().items():
            raise CrewError(f"process {pid} ended by itself with {code}")

    def continue_all(self) -> None:
        self._continue(float("inf"))

    def end(self, members: Sequence[Member]) -> None:
        """Ask the processes to end. All must, in good order."""
        self.continue_all()
        ending = {member.pid: member.name for member in members}
        for member in members:
            self._launcher.send(member.pid, SIGTERM)
            member.pid = 0
        deadline = time.monotonic() + END_WITHIN_S
        while ending:
            for pid, code in self._launcher.exits().items():
                if pid not in ending or code != 0:
                    raise CrewError(f"process {pid} ended with {code}")
                del ending[pid]
            if time.monotonic() > deadline:
                raise CrewError(f"{sorted(ending.values())} did not end in {END_WITHIN_S:.0f} s")
            time.sleep(POLL_S)

    def last_words(self) -> list[str]:
        """The end of everybody's log."""
        return [
            f"{log.name}: {line}"
            for log in sorted(self._folder.glob("*-[0-9]*.log"))
            for line in log.read_text(errors="replace").splitlines()[-8:]
        ]

    def _continue(self, now: float) -> None:
        for member in self._all():
            if member.continue_at is not None and now >= member.continue_at:
                self._launcher.send(member.pid, SIGCONT)
                member.continue_at = None

    def _all(self) -> list[Member]:
        return [*self.consumers, *self.publishers]
