"""How long work is asked to stop: it looks before each batch whether anybody still wants it.

Whoever starts the work hands down a `StillWanted`. The work itself knows nothing of runs, processes or Dagster.
"""

from collections.abc import Callable

from clientmgr.base.errors import ClientManagerError, ErrorKind

StillWanted = Callable[[], bool]
"""False: do nothing more. Asked before each batch of deletions, and from several threads."""


def always_wanted() -> bool:
    return True


class StoppedError(ClientManagerError):
    """The work stopped because nobody wants it any more. What is committed stays; the rest was not begun."""

    # Not tried again: somebody said so.
    kind = ErrorKind.PERMANENT


def ensure_wanted(still_wanted: StillWanted, what_was_done: str) -> None:
    """Raise `StoppedError`, which says what was done so far, when nobody wants the rest."""
    if not still_wanted():
        raise StoppedError(f"stopped on request: {what_was_done}")
