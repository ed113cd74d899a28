"""What the command line tells a benchmark, and where the peers' virtualenv is."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

TEMPORARY = Path(tempfile.gettempdir())
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Options:
    """How much to do and where."""

    quick: bool = False
    """A fraction of the work."""
    rounds: int = 5
    """How often each variant runs."""
    folder: Path = TEMPORARY
    """Where servers may keep their data."""
    tenants: int | None = None
    """For benchmarks of many tenants: so many instead of their own number. Results are scaled up where they say so."""


def peers_python() -> Path | None:
    """The Python that has the peers' packages (`tools/setup-bench` makes it), if there is one."""
    python = Path(os.environ.get("BENCH_VENV", REPOSITORY / ".venv-bench")) / "bin" / "python"
    return python if python.exists() else None


def peers_node() -> Path | None:
    """The Node that has the peers' npm packages beside it (`tools/setup-bench` installs both), if there is one."""
    node = REPOSITORY / "bench" / "peers" / "broker" / "node_modules" / ".bin" / "node"
    return node if node.exists() else None
