"""The logins of the embedded PostgreSQL: made by its superuser at each start, and what older data must hand over.

The owner of our tables is no superuser either. It may make databases, because tests and benchmarks do.
"""

from collections.abc import Mapping
from typing import Any, Final

from psycopg import Connection, sql

from clientmgr.base.logins import DAGSTER, DAGSTER_SCHEMA, LOGINS, PUBLISHER, refuse_mighty, set_password

OWNER: Final = "clientmgr_owner"

_MAKE: Final = """
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY {logins}::text [] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I', wanted);
        END IF;
        EXECUTE format('ALTER ROLE %I NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS', wanted);
    END LOOP;
END
$$
"""

_TAKE_OVER: Final = """
DO $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        WITH ours AS (
            SELECT oid, nspname, CASE nspname WHEN {dagster_schema} THEN {dagster} ELSE {owner} END AS owner
            FROM pg_namespace
            WHERE nspowner = {superuser}::regrole AND nspname !~ '^(pg_|information_schema$|public$)'
        )
        SELECT format('ALTER SCHEMA %I OWNER TO %I', nspname, owner) FROM ours
        UNION ALL
        SELECT format('ALTER TABLE %s OWNER TO %I', c.oid::regclass, o.owner)
        FROM pg_class AS c JOIN ours AS o ON o.oid = c.relnamespace
        WHERE c.relowner = {superuser}::regrole AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
            AND NOT EXISTS (  -- a column's sequence goes with its table
                SELECT FROM pg_depend AS d
                WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')
                    AND d.refclassid = 'pg_class'::regclass AND c.relkind = 'S'
            )
        UNION ALL
        SELECT format('ALTER ROUTINE %s OWNER TO %I', p.oid::regprocedure, o.owner)
        FROM pg_proc AS p JOIN ours AS o ON o.oid = p.pronamespace WHERE p.proowner = {superuser}::regrole
        UNION ALL
        SELECT format('ALTER TYPE %s OWNER TO %I', t.oid::regtype, o.owner)
        FROM pg_type AS t JOIN ours AS o ON o.oid = t.typnamespace
        WHERE t.typowner = {superuser}::regrole AND t.typtype IN ('e', 'd')
    LOOP
        EXECUTE statement;
    END LOOP;
    EXECUTE format('ALTER DATABASE %I OWNER TO %I', current_database(), {owner});
END
$$
"""


def make_logins(connection: Connection[Any], passwords: Mapping[str, str]) -> None:
    """Make them, with these passwords and no rights besides. The owner may act as any of the roles."""
    with connection.transaction():
        connection.execute(sql.SQL(_MAKE).format(logins=sql.Literal([*passwords, PUBLISHER])))
        for login, password in passwords.items():
            set_password(connection, login, password)
        refuse_mighty(connection, LOGINS)
        connection.execute(sql.SQL("ALTER ROLE {} CREATEDB INHERIT").format(sql.Identifier(OWNER)))
        roles = sql.SQL(", ").join(map(sql.Identifier, LOGINS))
        connection.execute(sql.SQL("GRANT {} TO {} WITH INHERIT TRUE").format(roles, sql.Identifier(OWNER)))


def take_over(connection: Connection[Any]) -> None:
    """Give the owner what the superuser owned: before there was an owner, the superuser made everything."""
    found = connection.execute(
        "SELECT pg_get_userbyid(datdba)::text, current_user::text FROM pg_database WHERE datname = current_database()"
    ).fetchone()
    if found is not None and found[0] == found[1]:
        names = {"owner": OWNER, "dagster": DAGSTER, "dagster_schema": DAGSTER_SCHEMA, "superuser": found[1]}
        connection.execute(sql.SQL(_TAKE_OVER).format(**{name: sql.Literal(value) for name, value in names.items()}))
