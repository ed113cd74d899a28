"""Which port serves a process's metrics where deploy/systemd starts it."""

from collections.abc import Iterator
from typing import Final

from clientmgr.contracts import daemons

FIRST_PORT: Final = 9100
FIRST_PORT_WHERE_NEEDED: Final = 9190
"""Well behind the others, so that a new daemon moves none of these."""


def metrics_ports() -> Iterator[tuple[str, int]]:
    """(process, port), in the order of their start."""
    yield from ((process.name, FIRST_PORT + number) for number, process in enumerate(daemons.started()))
    optional = [one for entry in daemons.ALL if entry.starts == "where needed" for one in entry.processes]
    yield from ((process.name, FIRST_PORT_WHERE_NEEDED + number) for number, process in enumerate(optional))
