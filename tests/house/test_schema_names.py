"""Which schema is a customer's is said in one place in Python and one in SQL, and the two agree."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clientmgr.base.customer_ids import CustomerId, schema_name
from clientmgr.base.database import Database, Role
from tests.house.checkout import ROOT

MAKERS = {"clientmgr/base/customer_ids.py", "sql/base/0004_schema_names.sql"}
APPLIED_BEFORE = {"sql/erasure/0002_statistics.sql"}
"""Migrations from before there was the function; another one has replaced what they say."""
FOLDERS = ("clientmgr", "clientmgr_dagster", "clientmgr_dashboard", "streaming", "sql", "tools")

# A name put together (`tenant_{…}`, 'tenant_' || …, "tenant_%d") or taken apart (^tenant_[0-9]+, substr(…)).
MADE = re.compile(r"""tenant_(["'{%\\\[(]|\$\{)""")


def test_nobody_else_makes_a_schemas_name() -> None:
    makers = {
        str(file.relative_to(ROOT))
        for file in _sources()
        if any(MADE.search(line) and not _is_our_own_name(line) for line in file.read_text().splitlines())
    }
    assert makers == MAKERS | APPLIED_BEFORE


@pytest.mark.parametrize("customer", [1, 7, 123, 10**17, 10**18 - 1])
def test_python_and_sql_make_the_same_name(database: Database, customer: int) -> None:
    with database.connect(Role.READER) as connection:
        row = connection.execute(
            "SELECT clientmgr.tenant_schema(%s), clientmgr.customer_of_schema(%s)",
            (customer, schema_name(CustomerId(customer))),
        ).fetchone()
    assert row == (schema_name(CustomerId(customer)), customer)


def test_what_only_looks_like_a_tenants_schema_is_nobodys(database: Database) -> None:
    names = ["tenant_0", "tenant_07", "tenant_", "tenant_x", "Tenant_7", "my_tenant_7", "tenant_7x", f"tenant_{10**18}"]
    with database.connect(Role.READER) as connection:
        rows = connection.execute("SELECT clientmgr.customer_of_schema(unnest(%s::name []))", (names,)).fetchall()
    assert rows == [(None,)] * len(names)


def _is_our_own_name(line: str) -> bool:
    """`tenant_` as the beginning of a metric's or a column's name, which no digit follows."""
    return "clientmgr_tenant_" in line


def _sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (ROOT / folder).rglob("*.py")
        yield from (ROOT / folder).rglob("*.sql")
