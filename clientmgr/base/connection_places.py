"""Who is connected, in all and per address. When it is full, whoever kept us waiting longest makes room."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from clientmgr.base.forwarded import Network, counted_as, is_trusted


class Guest(Protocol):
    """A connection, as far as its place matters."""

    def cut_off(self) -> None:
        """End it at once."""


class _Places:
    """The connections of one address, or all of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken: set[Guest] = set()
        self.waiting: OrderedDict[Guest, None] = OrderedDict()
        """Those that owe us something (a handshake, a request, the rest of one), the longest first."""

    @property
    def is_full(self) -> bool:
        return len(self.taken) >= self.most


class Places:
    """A connection that waits for its client gives way to a newer one; one whose request we work on never does.

    So a flood of silent connections pushes out itself, and `/healthz` is answered meanwhile.
    """

    def __init__(
        self, most: int, most_per_address: int, proxies: Sequence[Network], turned_away: Callable[[str], None]
    ) -> None:
        """`turned_away` is told each time why: it was full, or somebody made room."""
        self._all = _Places(most)
        self._most_per_address = most_per_address
        self._by_address: dict[str, _Places] = {}
        self._address_of: dict[Guest, str] = {}
        self._proxies = proxies
        self._turned_away = turned_away

    def __len__(self) -> int:
        return len(self._all.taken)

    def enter(self, guest: Guest, address: str) -> bool:
        """Take a place; False: there is none. Behind a proxy of ours many people share one address."""
        concerned = [self._all]
        if address and not is_trusted(address, self._proxies):
            counted = counted_as(address)
            concerned.insert(0, self._by_address.setdefault(counted, _Places(self._most_per_address)))
            self._address_of[guest] = counted
        for places in concerned:
            if places.is_full and not self._make_room(places):
                self._turned_away("full")
                self.leave(guest)
                return False
        for places in concerned:
            places.taken.add(guest)
        self.waits(guest)
        return True

    def waits(self, guest: Guest) -> None:
        """From now on it waits for its client."""
        for places in self._of(guest):
            places.waiting.pop(guest, None)
            places.waiting[guest] = None

    def works(self, guest: Guest) -> None:
        """From now on its client waits for us."""
        for places in self._of(guest):
            places.waiting.pop(guest, None)

    def leave(self, guest: Guest) -> None:
        for places in (self._all, *self._of(guest)):
            places.taken.discard(guest)
            places.waiting.pop(guest, None)
        address = self._address_of.pop(guest, None)
        if address is not None and not self._by_address[address].taken:
            del self._by_address[address]

    def _make_room(self, places: _Places) -> bool:
        longest = next(iter(places.waiting), None)
        if longest is None:
            return False
        self._turned_away("made room")
        self.leave(longest)
        longest.cut_off()
        return True

    def _of(self, guest: Guest) -> list[_Places]:
        if guest not in self._all.taken:
            return []
        address = self._address_of.get(guest)
        return [self._all] if address is None else [self._all, self._by_address[address]]
