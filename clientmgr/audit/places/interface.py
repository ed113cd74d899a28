"""What every place can do, and what goes wrong there."""

from typing import Final, Protocol

from clientmgr.base.errors import ClientManagerError, TransientError

ANSWER_WITHIN_S: Final = 10.0
"""How long a place may take: a verification waits for it, and so does a daemon that stops."""


class PlaceUnavailableError(TransientError):
    """The place does not answer, or not to us. Says nothing about the log."""


class AnchoredMeanwhileError(TransientError):
    """Another process has written an anchor since we looked."""


class PlaceNotReadableError(ClientManagerError):
    """The place takes anchors and never gives them back: nothing can be compared with it."""


class AnchorPlace(Protocol):
    """A place for anchors. It knows lines of bytes and their numbers; what is in them is not its business."""

    name: str
    """For people, without secrets. The same place has the same name whoever asks."""

    def read_last(self) -> bytes | None:
        """The newest line. None: nothing was ever written here."""

    def write(self, number: int, line: bytes) -> None:
        """Keep a line. On return it is safe. Refused if the place has a line of this number."""
