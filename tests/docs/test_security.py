"""docs/security.md says of the database's rights what its catalogues say, and has a part for every door."""

import os
import re
from collections.abc import Callable

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.logins import PUBLISHER
from clientmgr.base.settings import Settings
from clientmgr.contracts import daemons
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dashboard.access.users import Role as UserRole
from clientmgr_dashboard.pages import find_pages
from clientmgr_dashboard.web.handling import PageRoute
from tools.docs import DOCS, with_blocks
from tools.docs.access_matrix import DATABASE, NO, YES, Matrix, api, dashboard, database_rights, role_attributes

PAGE = DOCS / "security.md"
CUSTOMER = CustomerId(7)


@pytest.fixture
def rights(database: Database, settings_for: Callable[[Database], Settings]) -> Matrix:
    TenantSchemaManager(database, settings_for(database)).activate([CUSTOMER], actor="test")
    with database.connect(Role.OWNER) as connection:
        return database_rights(connection, CUSTOMER)


def test_the_databases_rights_are_as_they_are_written(rights: Matrix) -> None:
    text = with_blocks(PAGE, {DATABASE: rights.text()})
    if os.environ.get("GOLDEN") == "write":
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "GOLDEN=write pytest tests/docs/test_security.py"


def test_readers_only_read_and_nobody_changes_the_audit_log(rights: Matrix) -> None:
    _, ddl, writer, reader, publisher = range(5)
    assert [column.strip("`") for column in rights.columns[1:]] == [Role.DDL, Role.WRITER, Role.READER, PUBLISHER]
    tables = [row for row in rights.rows if not row[0].startswith("function")]
    assert {row[reader] for row in tables} <= {"read", "read some columns", NO}
    assert {row[publisher] for row in tables} == {NO}
    (audit,) = [row for row in tables if row[0] == "`clientmgr.audit_log`"]
    for role in (ddl, writer, reader):
        assert not set(audit[role].split(", ")) & {"update", "delete", "empty"}
    functions = {row[0].split("`")[1]: row for row in rights.rows if row[0].startswith("function")}
    assert all(row[reader] == NO for row in functions.values())
    assert set(functions["append_to_audit_chain"][1:]) == {NO}, "it is for its trigger alone"


def test_what_runs_with_its_owners_rights_finds_no_names_of_the_callers(database: Database) -> None:
    """Whoever calls it chooses search_path, and a name in pg_temp goes before all others that are not told to."""
    with database.connect(Role.OWNER) as connection:
        found = connection.execute(
            """
            SELECT p.oid::regprocedure::text, coalesce(array_to_string(p.proconfig, ';'), ''),
                EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) WHERE grantee = 0)
            FROM pg_proc AS p WHERE p.prosecdef AND p.pronamespace::regnamespace::text !~ '^pg_'
            """
        ).fetchall()
    assert len(found) >= 10
    assert [name for name, settings, _ in found if "search_path=pg_catalog, pg_temp" not in settings.split(";")] == []
    assert [name for name, _, by_all in found if by_all] == []


def test_no_role_of_ours_has_an_attribute_that_gives_it_more(database: Database) -> None:
    with database.connect(Role.OWNER) as connection:
        attributes = role_attributes(connection)
    assert attributes == dict.fromkeys((Role.DDL, Role.WRITER, Role.READER, PUBLISHER), (False,) * 5)


def test_every_page_that_changes_something_needs_an_operator_but_for_what_is_named_here() -> None:
    # A search by push token is a form, so that the token stands in no URL.
    harmless = {"/sign-out", "/devices", "/search"}
    routes = [route for page in find_pages() for route in page.routes if isinstance(route, PageRoute)]
    posts = [route for route in routes if route.method == "POST"]
    assert {route.path for route in posts if route.needs is not UserRole.OPERATOR} == harmless


def test_nobody_without_a_role_gets_more_than_what_is_open_to_all() -> None:
    open_to_nobody = {row[0] for matrix in (dashboard(), api()) for row in matrix.rows if row[1] == YES}
    assert open_to_nobody == {"`/sign-in`", "`/static/…`", "`/healthz`"}
    assert all(row[3] == YES for matrix in (dashboard(), api()) for row in matrix.rows), "an operator may all"


def test_every_listener_of_the_registry_has_its_door() -> None:
    text = PAGE.read_text()
    named = set(re.findall(r"`(\w+_HOST):(\w+_PORT)`", text))
    listeners = {
        (entry.listens.host_setting, entry.listens.port_setting)
        for entry in (*daemons.ALL, *daemons.DAGSTER)
        if entry.listens is not None
    }
    assert named == listeners | {("METRICS_HOST", "METRICS_PORT")}
