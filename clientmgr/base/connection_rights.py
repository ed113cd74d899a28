"""What a connection is asked before it is used: does it act as its role, and is that all that it could act as?

The boundary is the login: whoever holds a session may `SET ROLE` to whatever its login is a member of. And a role that
is asked for at log-in may never arrive: a pooler that drops `options` hands over the login's own rights. So each new
connection says, in one round trip, who it is; one that is not what it must be is closed. How to get at logins:
docs/operating.md.
"""

import re
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict

from clientmgr.base.errors import SettingsError

# Besides superusers: whoever may run programs, or read or write files, as the server does.
WHO_IT_IS: Final = """
SELECT current_user::text, session_user::text, (
    SELECT max(rolname::text) FROM pg_catalog.pg_roles
    WHERE (rolsuper OR rolname IN ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files'))
        AND (pg_has_role(session_user, oid, 'MEMBER') OR pg_has_role(current_user, oid, 'MEMBER'))
)
"""
_ROLE_OPTION: Final = re.compile(r"-c\s*role=(\S+)")


class TooMightyError(SettingsError):
    """A connection that is not what it was opened as, or that could become more."""


def role_taken_by(conninfo: str) -> str:
    """The role that a connection string asks for; without a wish, the login itself."""
    params = conninfo_to_dict(conninfo)
    asked = _ROLE_OPTION.findall(str(params.get("options") or ""))
    return str(asked[-1] if asked else params.get("user") or "")


def refuse_unless(role: str, answer: tuple[Any, ...] | None) -> None:
    """Refuse what `WHO_IT_IS` answered, unless it is `role` and nothing mightier. "": whatever its login is called."""
    if answer is None:
        raise TooMightyError("PostgreSQL: a connection that does not say who it is: refused")
    current, login, mighty = answer
    if role and current != role:
        raise TooMightyError(
            f"PostgreSQL: logged in as {login}, this connection acts as {current} and not as {role}: refused. "
            "A pooler that drops `options` does that. Give the role a login of its own: `clientmgr migrate --logins`."
        )
    if mighty is not None:
        raise TooMightyError(
            f"PostgreSQL: {login} acts as {current} but could act as {mighty}: refused. Make a login for each role: "
            "`clientmgr migrate --logins`, and set DATABASE_READER_URL, DATABASE_WRITER_URL and DATABASE_DDL_URL."
        )


def checked(connection: Connection[Any], role: str) -> None:
    """Of a new connection: closed and refused unless it is `role` and nothing mightier."""
    try:
        autocommit, connection.autocommit = connection.autocommit, True  # no transaction for it: one round trip
        refuse_unless(role, connection.execute(WHO_IT_IS).fetchone())
        connection.autocommit = autocommit
    except BaseException:
        connection.close()
        raise


async def checked_async(connection: AsyncConnection[Any], role: str) -> None:
    """As `checked`."""
    try:
        autocommit = connection.autocommit
        await connection.set_autocommit(True)
        refuse_unless(role, await (await connection.execute(WHO_IT_IS)).fetchone())
        await connection.set_autocommit(autocommit)
    except BaseException:
        await connection.close()
        raise


def connect_checked(conninfo: str, *, autocommit: bool = False) -> Connection[tuple[Any, ...]]:
    """A connection that acts as the role that its connection string asks for, and can't act as more."""
    connection = psycopg.connect(conninfo, autocommit=autocommit)
    checked(connection, role_taken_by(conninfo))
    return connection
