"""What all connections of an instance share."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from clientmgr.base.forwarded import Network
from clientmgr.base.settings import Settings
from clientmgr.live.tokens import Grant
from clientmgr.operations.ended_sessions import EndedSessions
from streaming.live.broadcast.history import History
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.broadcast.participants import Participants
from streaming.live.broadcast.places import Places
from streaming.live.broadcast.sending.interface import Sender
from streaming.live.broadcast.sending.outbox import Outbox
from streaming.live.broadcast.subscriptions import TopicRegistry
from streaming.live.broadcast.turns import Work


class OpenConnection(Protocol):
    """A connection, as far as the instance that serves it knows it."""

    grant: Grant | None

    @property
    def deflate_bits(self) -> int:
        """The window of compressed messages to it; 0: it takes none."""

    @property
    def outbox(self) -> Outbox: ...

    @property
    def subscriptions(self) -> Collection[str]:
        """The events that it watches."""

    def refuse(self, code: int, reason: str) -> None:
        """Close a client that may not be here, and tell it why."""

    def check(self, now: float, wall_clock: float) -> None:
        """Close it if it is silent, slow or no longer allowed to watch."""

    def close(self, code: int, reason: str) -> None:
        """Send a close frame, and hang up within a second whether the client answers or not."""

    def in_turn(self, work: Work) -> None:
        """Do something that gives an answer, when all earlier answers are on their way."""


@dataclass
class Hub:
    """One instance."""

    settings: Settings
    instance: str
    token_key: bytes
    participants: Participants
    sender: Sender
    topics: TopicRegistry
    last_positions: LastPositions
    history: History
    problem: Callable[[], str]
    """What is wrong with the instance, in a few words; empty: nothing."""
    loop: asyncio.AbstractEventLoop
    places: Places
    own_hosts: frozenset[str] | None
    """What a request's Host may be. None: anything."""
    trusted_proxies: Sequence[Network]
    """Their word on whose connection it is counts."""
    transports: set[OpenConnection] = field(default_factory=set)
    """Everything that is connected, plain HTTP too."""
    watchers: set[OpenConnection] = field(default_factory=set)
    """Those that speak WebSocket."""
    everybody_left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever the last connection has ended."""
    asked_early: dict[tuple[object, str], int] = field(default_factory=dict)
    """Who asked for what it missed (of which event, since when) before anything was known."""
    ended: EndedSessions | None = None
    """Dashboard sessions whose tokens count no longer."""
