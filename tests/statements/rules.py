"""When a statement reaches tenants as it must not. Pure: text in, complaint out."""

import functools
import re
from typing import Final

from clientmgr.base.customer_ids import CustomerId, schema_name
from clientmgr.base.sqlfiles import sql_root
from tests.statements.allowed import ALLOWED

SCHEMA: Final = re.compile(rf"\b{schema_name(CustomerId(1))[:-1]}[1-9][0-9]{{0,17}}\b", re.IGNORECASE)
_COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_LITERAL: Final = re.compile(r"'(?:[^']|'')*'")
_SEARCH_PATH: Final = re.compile(
    r"\bSET\s+(?:LOCAL\s+|SESSION\s+)?search_path\b|set_config\(\s*'search_path'", re.IGNORECASE
)


@functools.cache
def tenant_tables() -> frozenset[str]:
    """The tables that every tenant has, as its migrations make them."""
    text = "".join(file.read_text() for file in sorted((sql_root() / "tenant").glob("*.sql")))
    return frozenset(re.findall(r'CREATE (?:UNLOGGED )?TABLE :"schema"\.(\w+)', text))


@functools.cache
def _unqualified() -> re.Pattern[str]:
    """One of those tables where a table stands, without its schema before it."""
    names = "|".join(sorted(tenant_tables()))
    places = r"FROM|JOIN|INTO|UPDATE|USING|TABLE|ONLY|TRUNCATE|ANALYZE|VACUUM|COPY|LOCK|REFERENCES|EXISTS"
    return re.compile(rf"\b(?:{places})\s+\"?({names})\b\"?(?!\s*\.)", re.IGNORECASE)


def complaint(statement: str) -> str:
    """What is wrong with it; empty: nothing."""
    text = _COMMENT.sub(" ", statement)
    schemas = {found.lower() for found in SCHEMA.findall(text)}
    if len(schemas) > 1:
        return "" if _is_allowed(statement) else f"it names the schemas of {len(schemas)} tenants"
    if _SEARCH_PATH.search(text) and schemas:
        return "" if _is_allowed(statement) else "it has search_path find a tenant"
    # Unqualified names count where no literal holds them: a text is data, or goes through the rules above.
    outside = _LITERAL.sub("''", text)
    for table in {name.lower() for name in _unqualified().findall(outside)}:
        if not _is_defined_in(outside, table):
            return "" if _is_allowed(statement) else f"it reaches the table {table} of whatever search_path finds"
    return ""


def _is_defined_in(text: str, name: str) -> bool:
    """Whether the statement itself gives the name to a query (WITH name AS …)."""
    how = rf"\b{name}\b\s*(?:\([^()]*\))?\s*AS\s+(?:NOT\s+)?(?:MATERIALIZED\s*)?\("
    return re.search(how, text, re.IGNORECASE) is not None


def _is_allowed(statement: str) -> bool:
    return any(re.search(pattern, statement, re.IGNORECASE) for pattern in ALLOWED)
