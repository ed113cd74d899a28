"""Finds the SQL that we ship and reads it: numbered migrations and files of named queries.

From a checkout the files are in `sql/`; an installed wheel carries the same tree as `clientmgr/_sql/`.
"""

import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clientmgr.base.errors import MigrationError

_MIGRATION_NAME = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_QUERY_HEADER = re.compile(r"^-- name: ([a-z][a-z0-9_]*)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered SQL file."""

    version: int
    name: str
    sql: str
    checksum: str


@functools.cache
def sql_root() -> Path:
    """The folder that holds a folder for each package that owns tables, and `tenant/`."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "_sql", package.parent / "sql"):
        if (candidate / "tenant").is_dir():
            return candidate
    raise MigrationError(f"the SQL files are missing: neither {package / '_sql'} nor {package.parent / 'sql'} is there")


def read_migrations(folder: Path) -> tuple[Migration, ...]:
    """The numbered files of `folder`, in order. A gap, a repeated number or a stray file is an error by name."""
    migrations: list[Migration] = []
    for path in sorted(folder.glob("*.sql")):
        match = _MIGRATION_NAME.match(path.name)
        if match is None:
            raise MigrationError(f"{path.name}: a migration is named NNNN_what_it_does.sql")
        version = int(match[1])
        if version != len(migrations) + 1:
            raise MigrationError(f"{path.name}: number {len(migrations) + 1:04d} was expected here")
        text = path.read_text(encoding="utf-8")
        migrations.append(Migration(version, path.name, text, hashlib.sha256(text.encode()).hexdigest()))
    if not migrations:
        raise MigrationError(f"{folder}: no migrations found")
    return tuple(migrations)


@functools.cache
def named_queries(relative_path: str) -> Mapping[str, str]:
    """The queries of one file below `sql/`, by the name in the `-- name: …` line above each."""
    text = (sql_root() / relative_path).read_text(encoding="utf-8")
    parts = _QUERY_HEADER.split(text)
    if len(set(parts[1::2])) < len(parts[1::2]):
        raise MigrationError(f"{relative_path}: a query's name stands there twice")
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


@functools.cache
def result_tables() -> Mapping[str, str]:
    """The tables that batch work writes its results to, each with its file of queries: `sql/<package>/results/`."""
    files = sorted(sql_root().glob("*/results/*.sql"))
    return {file.stem: str(file.relative_to(sql_root())) for file in files}
