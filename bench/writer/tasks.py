"""What a worker program is told and what it reports."""

from dataclasses import dataclass, field

from streaming import writer


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker program is to do."""

    url: str
    kind: str
    """daemon, one-commit-per-event or limit"""
    daemon: str = writer.DAEMON.name
    rehearsal: str = ""
    """Where the rehearsal left its notes."""
    workers: int = 1
    worker: int = 0
    connections: int = 1
    """Of each worker."""
    messages: int = 0
    """For `memory_kb`: of how many messages the marks are shares."""


@dataclass(slots=True)
class Report:
    """What it took."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_kb: dict[str, int] = field(default_factory=dict)
    """Resident memory when so many per cent of the messages were done."""
