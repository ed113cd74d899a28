"""What guards the audit log inside the database: tables, triggers, functions and rights, compared with what we ship.

Somebody who owns the database can take a guard away and put it back. Whatever was done meanwhile, chains and anchors
show; what is still there, this shows: a trigger that swallows rows, a rule, a policy that hides some, a right too many.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from clientmgr.base.sqlfiles import named_queries, read_migrations, sql_root

_QUERIES = named_queries("audit/queries/guards.sql")

TABLES: Final = ("audit_heads", "audit_log")
_ORDINARY: Final = "r"
_KINDS: Final[Mapping[str, str]] = {
    "v": "a view",
    "m": "a materialised view",
    "p": "a partitioned table",
    "f": "a foreign table",
}

_BEFORE, _INSERT, _DELETE, _UPDATE, _TRUNCATE = 2, 4, 8, 16, 32  # bits of pg_trigger.tgtype


@dataclass(frozen=True, slots=True)
class _Trigger:
    table: str
    function: str
    type: int


_TRIGGERS: Final[Mapping[str, _Trigger]] = {
    "audit_log_append": _Trigger("audit_log", "append_to_audit_chain", _INSERT),
    "audit_log_unchanged": _Trigger("audit_log", "refuse_audit_change", _BEFORE | _UPDATE | _DELETE | _TRUNCATE),
    "audit_heads_kept": _Trigger("audit_heads", "refuse_audit_change", _BEFORE | _DELETE | _TRUNCATE),
}

_MAY: Final = frozenset(
    {
        ("audit_log", "clientmgr_ddl", "INSERT"),
        ("audit_log", "clientmgr_writer", "INSERT"),
        ("lock_audit_chain", "clientmgr_ddl", "EXECUTE"),
        ("lock_audit_chain", "clientmgr_writer", "EXECUTE"),
    }
)
"""Who may do what besides the owner. Reading is left out: whoever an operator lets read changes nothing."""


@dataclass(frozen=True, slots=True)
class _Function:
    body: str
    as_owner: bool


_FUNCTION = re.compile(r"CREATE (?:OR REPLACE )?FUNCTION clientmgr\.(\w+)\s*\((.*?)AS \$\$(.*?)\$\$", re.DOTALL)
_SEARCH_PATH: Final = ["search_path=pg_catalog, pg_temp"]


@functools.cache
def _functions() -> Mapping[str, _Function]:
    """Our functions as our migrations make them; the last of a name counts."""
    text = "\n".join(migration.sql for migration in read_migrations(sql_root() / "audit"))
    return {
        name: _Function(body, "SECURITY DEFINER" in header)
        for name, header, body in (match.groups() for match in _FUNCTION.finditer(text))
    }


def believe_only_the_catalogue(connection: Connection[Any]) -> None:
    """For this transaction: a `search_path` of the owner's could put a view in the place of pg_trigger."""
    connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")


def missing_tables(connection: Connection[Any], *, there_were_some: bool) -> list[str]:
    """Without these there is nothing to verify. A database that was never migrated has no log that could be gone.

    `there_were_some`: an anchor tells of them.
    """
    was_migrated = connection.execute("SELECT to_regclass('clientmgr.migrations')").fetchone() != (None,)
    if not (was_migrated or there_were_some):
        return []
    there = {row[0] for row in connection.execute(_QUERIES["tables"])}
    return [f"the table clientmgr.{name} is gone" for name in TABLES if name not in there]


def broken_guards(connection: Connection[Any]) -> Iterator[str]:
    """What is not as our migrations made it, one sentence each."""
    yield from _tables(connection)
    for kind, name, table in connection.execute(_QUERIES["attached"]):
        yield f"{_plain(table)} has a {kind} that is not ours: {_plain(name)}"
    yield from _triggers(connection)
    yield from _changed_functions(connection)
    for thing, grantee, privilege in connection.execute(_QUERIES["grants"]):
        if privilege != "SELECT" and (_plain(thing), grantee, privilege) not in _MAY:
            yield f"{grantee} may {privilege} on {_plain(thing)}: that right is not ours"
    for role, why in connection.execute(_QUERIES["mighty_roles"]):
        yield f"the role {role} {why}: it could change the log"
    for role, setting in connection.execute(_QUERIES["replication_settings"]):
        yield f"{setting} for {role} switches the triggers off"


def _tables(connection: Connection[Any]) -> Iterator[str]:
    for name, kind, persistence, hides_rows, is_partition, owner, is_ours, has_key in connection.execute(
        _QUERIES["tables"]
    ):
        if kind != _ORDINARY:
            yield f"{name} is {_KINDS.get(kind, 'something else')} and not the table that we made"
            continue
        if persistence != "p":
            yield f"{name} is not kept safe: it is unlogged or temporary"
        if hides_rows:
            yield f"row level security is on for {name}: it can hide rows"
        if is_partition:
            yield f"{name} was made a partition of another table"
        if not is_ours:
            yield f"{name} belongs to {owner}, who does not own the other tables"
        if not has_key:
            yield f"{name} has lost its primary key"


def _triggers(connection: Connection[Any]) -> Iterator[str]:
    found = set()
    for name, table, function, kind, enabled, is_conditional in connection.execute(_QUERIES["triggers"]):
        ours = _TRIGGERS.get(name)
        if ours is None or ours.table != _plain(table):
            yield f"{_plain(table)} has a trigger that is not ours: {name}"
            continue
        found.add(name)
        if enabled not in ("O", "A"):
            yield f"the trigger {name} on {ours.table} is switched off"
        if (_plain(function), kind, is_conditional) != (ours.function, ours.type, False):
            yield f"the trigger {name} on {ours.table} is not as we made it"
    for name in sorted(_TRIGGERS.keys() - found):
        yield f"the trigger {name} on {_TRIGGERS[name].table} is gone"


def _changed_functions(connection: Connection[Any]) -> Iterator[str]:
    found: list[str] = []
    for name, language, body, as_owner, config, owner, is_ours in connection.execute(_QUERIES["functions"]):
        ours = _functions()[name]
        if name in found:
            yield f"there is a second function {name}, and only one is ours"
            continue
        found.append(name)
        if (language, body, as_owner, config) != ("plpgsql", ours.body, ours.as_owner, _SEARCH_PATH):
            yield f"the function {name} is not as we made it"
        if not is_ours:
            yield f"the function {name} belongs to {owner}, who does not own the other tables"
    for name in sorted(_functions().keys() - set(found)):
        yield f"the function {name} is gone"


def _plain(name: str) -> str:
    return str(name).removeprefix("clientmgr.")
