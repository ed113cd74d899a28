"""What a worker program is told and what it reports."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Task:
    url: str
    kind: str
    """A key of `worker.KINDS`."""
    strategy: str = "postgres"
    dynamodb_url: str = ""
    recipients: int = 0
    devices: int = 1
    filtered: bool = False
    tenants: int = 1
    worker: int = 0
    workers: int = 1
    seconds: float = 0.0
    """How long to send transactional messages."""


@dataclass(slots=True)
class Report:
    wall_s: float = 0.0
    cpu_s: float = 0.0
    amount: int = 0
    """Devices that were fetched or sent to."""
    latencies_ms: list[float] = field(default_factory=list)
