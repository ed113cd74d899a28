"""Ends sessions of the dashboard in the database: one at its sign-out, or all of a user who is gone or changed."""

import json
from collections.abc import Mapping
from typing import Any

from psycopg import Connection

from clientmgr.base.database import Database, Role
from clientmgr.base.sqlfiles import named_queries

_QUERIES = named_queries("operations/queries/ended_sessions.sql")


def store_ended(database: Database, ended: Mapping[str, tuple[str, float]]) -> None:
    """Of each session by its id: the user, and when it would have expired."""
    with database.connect(Role.WRITER, autocommit=True) as connection:
        for session_id, (user, expires_at) in ended.items():
            connection.execute(_QUERIES["end"], {"session_id": session_id, "user_name": user, "expires_at": expires_at})
        connection.execute(_QUERIES["forget_expired"])


def note_users(connection: Connection[Any], marks: Mapping[str, str], lifetime_s: float) -> list[str]:
    """Keep how the users are, and end the sessions of those who are gone or changed. Returns their names."""
    with connection.transaction():
        connection.execute(_QUERIES["lock_users"])
        rows = connection.execute(
            _QUERIES["note_users"], {"marks": json.dumps(dict(marks)), "lifetime_s": lifetime_s}
        ).fetchall()
    return [str(name) for (name,) in rows]
