"""What a run is made of: how many processes and messages, how often what goes wrong, and the seed. Pure data."""

from dataclasses import dataclass, field
from typing import Literal

TOPIC = "faults"
ECHO_TOPIC = "faults-echo"
"""What handlers publish: it must be there once for each message that asked for it."""
GROUP = "faults-group"


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What is done to the processes and the server, in a random order."""

    consumer_kills: int = 0
    publisher_kills: int = 0
    terminated_backends: int = 0
    server_restarts: int = 0
    pauses: int = 0
    """SIGSTOP, and SIGCONT a while later."""
    trims: int = 0
    """Not a fault: retention at work meanwhile."""

    def by_phase(self) -> tuple["Faults", "Faults"]:
        """For a backlog: those of its making, and those of its reading."""
        publishing = Faults(
            publisher_kills=self.publisher_kills,
            terminated_backends=self.terminated_backends // 3,
            server_restarts=self.server_restarts // 2,
            pauses=self.pauses // 3,
        )
        consuming = Faults(
            consumer_kills=self.consumer_kills,
            terminated_backends=self.terminated_backends - publishing.terminated_backends,
            server_restarts=self.server_restarts - publishing.server_restarts,
            pauses=self.pauses - publishing.pauses,
            trims=self.trims,
        )
        return publishing, consuming


@dataclass(frozen=True, kw_only=True)
class Chances:
    """How likely publishers and handlers are to misbehave: of transactions and batches, 0 to 1."""

    rolled_back: float = 0.1
    slow_commit: float = 0.05
    poison: float = 0.01
    own_commit: float = 0.1
    """Published without a transaction of the caller's, as group commits."""
    large: float = 0.05
    """Up to 300 messages; the others have a few dozen at most."""
    transient_failure: float = 0.04
    surprise: float = 0.01
    """Of transactions: their first two attempts end in an error that nobody foresaw."""
    slow_batch: float = 0.2
    retried_message: float = 0.002
    """The handler asks for a message again, later: the one reason for which a message may leave its place."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One run."""

    seed: int
    at_tail: bool
    """Consumers run while publishers publish. False: everything is published before the first consumer starts."""
    messages: int
    faults: Faults
    chances: Chances = field(default_factory=Chances)
    consumers: int = 4
    publishers: int = 3
    partitions: int = 16
    tenants: int = 40
    batch_size: int = 100
    publisher_pause_s: float = 0.0
    """Longest rest between two transactions."""
    slow_commit_s: float = 0.05
    cut_off_ms: int = 1500
    lease_s: float = 1.0
    """Shorter than the longest SIGSTOP."""
    mutant: str | None = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one process is to do."""

    role: Literal["consumer", "publisher"]
    name: str
    seed: str
    url: str
    log_file: str
    scenario: Scenario
