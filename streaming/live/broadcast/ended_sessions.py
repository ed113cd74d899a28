"""Viewers whose dashboard session has ended leave at once, and their tokens count no longer.

While the database is away, what was known last counts: positions do not need it.
"""

from streaming.live.broadcast import commands
from streaming.live.broadcast.hub import Hub


def close_ended(hub: Hub) -> None:
    for watcher in list(hub.watchers):
        grant = watcher.grant
        if grant is None or hub.ended is None:
            continue
        if hub.ended.is_ended(grant.session, grant.user, grant.started_at):
            watcher.refuse(commands.UNAUTHENTICATED, commands.SESSION_ENDED)
