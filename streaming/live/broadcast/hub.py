"""What all connections of an instance share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clientmgr.base.settings import Settings
from streaming.live.broadcast.last_positions import LastPositions
from streaming.live.broadcast.participants import Participants
from streaming.live.broadcast.topics import TopicRegistry

if TYPE_CHECKING:
    from streaming.live.broadcast.connection import Connection


@dataclass
class Hub:
    """One instance."""

    settings: Settings
    instance: str
    token_key: bytes
    participants: Participants
    topics: TopicRegistry
    last_positions: LastPositions
    problem: Callable[[], str]
    """What is wrong with the instance, in a few words; empty: nothing."""
    loop: asyncio.AbstractEventLoop
    transports: "set[Connection]" = field(default_factory=set)
    """Everything that is connected, plain HTTP too."""
    watchers: "set[Connection]" = field(default_factory=set)
    """Those that speak WebSocket."""
    everybody_left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever the last of them has gone."""
