"""Who may do what at which door: a matrix for each door, made from what the code itself goes by.

A door is one function that returns its `Matrix`, and an entry in `DOORS`; docs/security.md has a part of that name. The
database's rights are read from the catalogues of a migrated database, by the test that compares them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId, schema_name
from clientmgr.base.database import Role as DatabaseRole
from clientmgr.base.logins import PUBLISHER
from clientmgr_dashboard.access.dashboard_door import OPEN_TO_ALL
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.api.endpoints import PREFIX
from clientmgr_dashboard.dagster_ui.routes import ROUTES, Needs
from clientmgr_dashboard.pages import find_pages
from clientmgr_dashboard.web.handling import PageRoute
from streaming.intake.routes import DEVICE_ROUTES, EVENTS_PATH
from streaming.intake.routes import OPEN_TO_ALL as INTAKE_OPEN_TO_ALL
from streaming.live.broadcast.http import PAGE
from tools.docs import gateway_rights
from tools.docs.markdown import code, table

YES: Final = "yes"
NO: Final = "–"
DATABASE: Final = "database"
"""The name of the part with the database's rights, which needs a server."""
RIGHTS: Final = {"SELECT": "read", "INSERT": "insert", "UPDATE": "update", "DELETE": "delete", "TRUNCATE": "empty"}


@dataclass(frozen=True)
class Matrix:
    """What is there at a door, and which callers may have it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def text(self) -> str:
        return table(self.columns, self.rows)


def dashboard() -> Matrix:
    """The dashboard's pages and forms, from what each page declares."""
    rows = [_row(_spelled(path), "anybody") for path in OPEN_TO_ALL]
    for page in find_pages():
        for route in page.routes:
            # A route that is no PageRoute is open to all by name: the guard lets nobody else through.
            if isinstance(route, PageRoute):
                rows.append(_row(f"`{route.method} {route.path}`", route.needs))
    return Matrix(("dashboard", "nobody", *Role), tuple(rows))


def api() -> Matrix:
    """The API's operations."""
    operations = [operation for page in find_pages() for operation in page.operations]
    rows = [_row(f"`GET {PREFIX}/{name}`", Role.VIEWER) for name in ("openapi.json", "session")]
    rows += [_row(f"`{one.method} {PREFIX}{one.path}`: {one.summary}", one.needs) for one in operations]
    return Matrix(("API", "nobody", *Role), tuple(rows))


def metrics() -> Matrix:
    """METRICS_PORT of every daemon (clientmgr/base/metrics_server.py)."""
    columns = ("METRICS_PORT", "this machine, no METRICS_TOKEN set", "others, without the token", "with METRICS_TOKEN")
    return Matrix(columns, (("`GET /metrics`", YES, NO, YES), ("`GET /healthz`: well or not", YES, YES, YES)))


def live() -> Matrix:
    """LIVE_WS_PORT (streaming/live/broadcast)."""
    columns = ("live broadcast", "without a token", "with a token for some events", "with a token for `*`")
    return Matrix(
        columns,
        (
            *((f"`GET {path}`: without data", YES, YES, YES) for path in PAGE),
            ("`GET /healthz`: well or not", YES, YES, YES),
            ("`/ws`: positions of an event", NO, "those events", YES),
            ("`/ws`: positions with `LIVE_AUTH=off`, on loopback, for a demo", YES, YES, YES),
        ),
    )


def dagster() -> Matrix:
    """The routes of Dagster's web application, from the table that its door goes by."""
    needs = {Needs.NOTHING: "anybody", Needs.SESSION: Role.VIEWER, Needs.OPERATOR: Role.OPERATOR}
    rows = [_row(f"`{path}`", needs[one]) for path, one in ROUTES.items() if one is not Needs.OPERATION]
    rows += [
        _row("`POST /graphql`: a query", Role.VIEWER),
        _row("`POST /graphql`: a mutation", Role.OPERATOR),
        _row("`GET /graphql`: a query", Role.VIEWER),
        ("`GET /graphql`: a mutation", NO, *(NO for _ in Role)),
        _row("WebSocket `/graphql`: a subscription", Role.VIEWER),
        ("WebSocket `/graphql`: a mutation", NO, *(NO for _ in Role)),
        ("anything else that changes something, or comes from a foreign page", NO, *(NO for _ in Role)),
    ]
    return Matrix(("Dagster", "nobody", *Role), tuple(rows))


def intake() -> Matrix:
    """INTAKE_PORT (streaming/intake), from its routes."""
    columns = ("intake", "nobody", "an application's key")
    rows = [(f"`GET {path}`", YES, YES) for path in INTAKE_OPEN_TO_ALL]
    rows.append((f"`POST {EVENTS_PATH}`: events of the key's own application", NO, YES))
    rows += [(f"`{route.method} {route.path}`: {route.summary}", NO, YES) for route in DEVICE_ROUTES]
    rows.append(("events of another customer or application, merges of contacts, anything that reads", NO, NO))
    return Matrix(columns, tuple(rows))


def gateway() -> Matrix:
    """The gateway's checks, each asked with one right alone."""
    return Matrix(("gateway", *code_each(gateway_rights.RIGHTS)), tuple(gateway_rights.rows()))


DOORS: Final[dict[str, Callable[[], Matrix]]] = {
    "dashboard": dashboard,
    "API": api,
    "Dagster": dagster,
    "gateway": gateway,
    "metrics": metrics,
    "live broadcast": live,
    "intake": intake,
}
"""By the name of the generated part."""


def blocks() -> dict[str, str]:
    return {name: door().text() for name, door in DOORS.items()}


_ROLES: Final[tuple[str, ...]] = (*(role for role in DatabaseRole if role is not DatabaseRole.OWNER), PUBLISHER)


def database_rights(connection: Connection[Any], customer_id: CustomerId) -> Matrix:
    """What each role may do with each table, and which functions it may run with their owner's rights.

    Whatever schema they are in: one that is new is not forgotten. Dagster's own tables are its own.
    """
    roles = _ROLES
    tables = connection.execute(_TABLES).fetchall()
    rights = {(table_oid, role): _rights(connection, table_oid, role) for table_oid, _, _ in tables for role in roles}
    rows = [
        (_named(schema, name, customer_id), *(rights[table_oid, role] for role in roles))
        for table_oid, schema, name in tables
    ]
    functions = connection.execute(_FUNCTIONS, {"roles": list(roles)}).fetchall()
    rows += [
        (f"function `{name}`, with its owner's rights", *(YES if role in able else NO for role in roles))
        for name, able in functions
    ]
    return Matrix(("table", *code_each(roles)), tuple(rows))


def role_attributes(connection: Connection[Any]) -> dict[str, tuple[bool, ...]]:
    """Of each role of ours: superuser, may make roles, may make databases, replicates, passes row security."""
    roles = _ROLES
    found = connection.execute(
        "SELECT rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls "
        "FROM pg_roles WHERE rolname = ANY(%s)",
        (list(roles),),
    )
    return {name: tuple(attributes) for name, *attributes in found}


def code_each(names: Iterable[str]) -> Iterator[str]:
    return (code(name) for name in names)


def _row(action: str, needs: str) -> tuple[str, ...]:
    by_role = [YES if needs == "anybody" or role.includes(Role(needs)) else NO for role in Role]
    return (action, YES if needs == "anybody" else NO, *by_role)


def _spelled(path: str) -> str:
    return f"`{path}…`" if path.endswith("/") else f"`{path}`"


def _rights(connection: Connection[Any], table_oid: int, role: str) -> str:
    row = connection.execute(_RIGHTS, {"role": role, "table": table_oid, "rights": list(RIGHTS)}).fetchone()
    held, columns = row or ([], [])
    spelled = [RIGHTS[right] for right in held] + [f"{RIGHTS[right]} some columns" for right in columns]
    return ", ".join(spelled) or NO


def _named(schema: str, name: str, customer_id: CustomerId) -> str:
    return code(f"{'tenant_<id>' if schema == schema_name(customer_id) else schema}.{name}")


_TABLES: Final = """
SELECT c.oid::bigint, n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
    AND n.nspname !~ '^(pg_.*|information_schema|dagster)$'
ORDER BY n.nspname, c.relname
"""
_RIGHTS: Final = """
SELECT
    array(
        SELECT name FROM unnest(%(rights)s::text []) WITH ORDINALITY AS r (name, place)
        WHERE has_table_privilege(%(role)s, %(table)s::oid, name) ORDER BY place
    ),
    array(
        SELECT name FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS r (name)
        WHERE NOT has_table_privilege(%(role)s, %(table)s::oid, name)
            AND has_any_column_privilege(%(role)s, %(table)s::oid, name)
    )
"""
_FUNCTIONS: Final = """
SELECT CASE n.nspname WHEN 'clientmgr' THEN '' ELSE n.nspname || '.' END || p.proname,
    array(SELECT r FROM unnest(%(roles)s::text []) AS r WHERE has_function_privilege(r, p.oid, 'EXECUTE'))
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname !~ '^(pg_.*|information_schema)$' AND p.prosecdef
ORDER BY n.nspname, p.proname
"""
