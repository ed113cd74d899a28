"""Who has a place: few places for those who have shown no token yet, the others for those who have.

A place without a token is never refused: the newcomer gets that of the one who has had it longest. Somebody who opens
many silent connections so takes places from itself, and a viewer needs one only for the moment until its token is read.
"""

from typing import Protocol

from clientmgr.base.settings import Settings
from streaming.live.broadcast.broadcast_metrics import UNAUTHENTICATED


class Stranger(Protocol):
    """A connection, as far as places know it. It is compared by identity."""

    def give_up_place(self) -> None:
        """End it: somebody else needs its place. It leaves at once."""


class Places:
    """The places of one instance. An address of "" is not known yet, and has no limit of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._strangers: dict[Stranger, str] = {}  # with their addresses, the oldest first
        self._strangers_of: dict[str, dict[Stranger, None]] = {}
        self._admitted: dict[Stranger, str] = {}
        self._admitted_of: dict[str, int] = {}

    def arrive(self, who: Stranger, address: str) -> None:
        """Somebody has connected."""
        self._strangers[who] = address
        if address:
            self._strangers_of.setdefault(address, {})[who] = None
        self._make_room(address)
        UNAUTHENTICATED.set(len(self._strangers))

    def identify(self, who: Stranger, address: str) -> None:
        """A proxy has said whose connection it is."""
        if who in self._strangers:
            self._forget_stranger(who)
            self.arrive(who, address)

    def admit(self, who: Stranger) -> str:
        """It has shown a token. Returns why it can't stay all the same; empty: it has a place now."""
        if who in self._admitted:
            return ""
        address = self._strangers.get(who, "")
        if len(self._admitted) >= self._settings.live_ws_max_connections:
            return "too many connections"
        if address and self._admitted_of.get(address, 0) >= self._settings.live_ws_max_connections_per_address:
            return "too many connections from this address"
        self._forget_stranger(who)
        self._admitted[who] = address
        if address:
            self._admitted_of[address] = self._admitted_of.get(address, 0) + 1
        UNAUTHENTICATED.set(len(self._strangers))
        return ""

    def leave(self, who: Stranger) -> None:
        """It has ended, or is about to. It may be told more than once."""
        self._forget_stranger(who)
        address = self._admitted.pop(who, "")
        if address:
            self._admitted_of[address] -= 1
            if not self._admitted_of[address]:
                del self._admitted_of[address]
        UNAUTHENTICATED.set(len(self._strangers))

    def _make_room(self, address: str) -> None:
        of_address = self._strangers_of.get(address)
        if of_address and len(of_address) > self._settings.live_ws_max_unauthenticated_per_address:
            self._end(next(iter(of_address)))
        if len(self._strangers) > self._settings.live_ws_max_unauthenticated:
            self._end(next(iter(self._strangers)))

    def _end(self, oldest: Stranger) -> None:
        self._forget_stranger(oldest)
        oldest.give_up_place()

    def _forget_stranger(self, who: Stranger) -> None:
        address = self._strangers.pop(who, "")
        if address:
            of_address = self._strangers_of[address]
            del of_address[who]
            if not of_address:
                del self._strangers_of[address]
