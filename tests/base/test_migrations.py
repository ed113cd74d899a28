"""The control schema: applied once, in order, with checksums, whoever starts at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clientmgr.audit.log import AuditLogger
from clientmgr.audit.verification import verify
from clientmgr.base import migrations
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import MigrationError
from clientmgr.base.sqlfiles import named_queries, read_migrations, sql_root
from clientmgr.operations.migrations import migrate_database
from tests.keys import TEST_KEY


def test_a_new_database_gets_everything_and_a_second_start_nothing(empty_database: Database) -> None:
    assert migrate_database(empty_database)[0] == "base/0001_schema_and_roles.sql"
    assert migrate_database(empty_database) == []


def test_files_that_moved_are_known_by_the_names_under_which_databases_have_applied_them(
    empty_database: Database,
) -> None:
    migrate_database(empty_database)
    with empty_database.connect(Role.OWNER) as connection:
        rows = connection.execute("SELECT component || '/' || name FROM clientmgr.migrations").fetchall()
    applied = {name for (name,) in rows}
    assert applied >= set(migrations.APPLIED_AS.values())
    assert applied.isdisjoint(migrations.APPLIED_AS)


def test_a_database_of_a_newer_release_is_refused(empty_database: Database) -> None:
    migrate_database(empty_database)
    with empty_database.connect(Role.OWNER, autocommit=True) as connection:
        connection.execute("INSERT INTO clientmgr.migrations VALUES ('broker', 99, '0099_newer.sql', 'x')")
    with pytest.raises(MigrationError, match=r"sql/broker: 0099_newer\.sql was applied, but this release"):
        migrate_database(empty_database)


def test_the_platforms_chain_begins_with_the_migration_and_never_again(empty_database: Database) -> None:
    audit = AuditLogger(TEST_KEY.encode())
    migrate_database(empty_database, audit=audit)
    with empty_database.connect(Role.OWNER) as connection:
        assert list(verify(connection, audit)) == [], "a new installation is intact"
    with empty_database.connect(Role.OWNER) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM clientmgr.audit_log")
        connection.execute("DELETE FROM clientmgr.audit_heads")
    migrate_database(empty_database, audit=audit)
    with empty_database.connect(Role.OWNER) as connection:
        (finding,) = verify(connection, audit)
    assert finding.problem == "the platform's chain is missing; every migrated database has one"


def test_two_starts_at_once_are_safe(empty_database: Database) -> None:
    starters = 4
    together = threading.Barrier(starters)

    def start(_: int) -> list[str]:
        together.wait()
        return migrate_database(empty_database)

    with ThreadPoolExecutor(starters) as executor:
        applied = sorted(map(len, executor.map(start, range(starters))))

    assert applied[:-1] == [0] * (starters - 1)
    assert applied[-1] > 0


def test_an_edited_applied_file_is_refused_by_name(
    empty_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "sql_root", lambda: tmp_path)
    folder = tmp_path / "base"
    folder.mkdir()
    for file in (sql_root() / "base").glob("*.sql"):
        (folder / file.name).write_text(file.read_text())
    migrate_database(empty_database, ["base"])
    (folder / "0001_schema_and_roles.sql").write_text("SELECT 1;")

    with pytest.raises(MigrationError, match=r"sql/base: 0001_schema_and_roles\.sql was edited"):
        migrate_database(empty_database, ["base"])


def test_a_failing_migration_leaves_nothing_behind(
    empty_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "sql_root", lambda: tmp_path)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "0001_good.sql").write_text("CREATE TABLE clientmgr.good ();")
    (tmp_path / "base" / "0002_bad.sql").write_text("CREATE TABLE clientmgr.bad (x no_such_type);")

    with pytest.raises(Exception, match="no_such_type"):
        migrate_database(empty_database, ["base"])

    with empty_database.connect(Role.OWNER) as connection:
        row = connection.execute("SELECT to_regclass('clientmgr.good')").fetchone()
    assert row == (None,)


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["0001_a.sql", "0003_c.sql"], r"0003_c\.sql: number 0002 was expected"),
        (["0001_a.sql", "0001_b.sql"], r"0001_b\.sql: number 0002 was expected"),
        (["0001_a.sql", "notes.sql"], r"notes\.sql: a migration is named"),
        ([], "no migrations found"),
    ],
)
def test_misnumbered_files_are_refused_by_name(tmp_path: Path, names: list[str], complaint: str) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1;")
    with pytest.raises(MigrationError, match=complaint):
        read_migrations(tmp_path)


def test_every_query_file_names_its_queries() -> None:
    files = sorted([*sql_root().glob("*/queries/*.sql"), *sql_root().glob("*/results/*.sql")])
    assert files
    for file in files:
        queries = named_queries(str(file.relative_to(sql_root())))
        assert queries
        assert all(queries.values())
