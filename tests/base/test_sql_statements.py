"""SQL taken apart into its statements."""

import pytest

from clientmgr.base.errors import MigrationError
from clientmgr.base.sql_statements import statements_of
from clientmgr.base.sqlfiles import sql_root

ATOMIC = "CREATE FUNCTION f(a int) RETURNS int BEGIN ATOMIC SELECT CASE WHEN a > 1 THEN 1 END; SELECT 2; END"


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT 1;\n-- a comment; of two parts\n;;", ["SELECT 1"]),
        ("SELECT ';', 'it''s;' ; SELECT E'\\';', e'\\\\'; SELECT '\\'", [
            "SELECT ';', 'it''s;'", "SELECT E'\\';', e'\\\\'", "SELECT '\\'",
        ]),
        ('SELECT "a;""b" ; SELECT 1', ['SELECT "a;""b"', "SELECT 1"]),
        ("DO $$ BEGIN x; END $$; DO $a$ $$;$$ $b$; $a$; SELECT 1", [
            "DO $$ BEGIN x; END $$", "DO $a$ $$;$$ $b$; $a$", "SELECT 1",
        ]),
        ("SELECT a$b$c; SELECT $1; SELECT 1", ["SELECT a$b$c", "SELECT $1", "SELECT 1"]),
        ("SELECT 1 /* ; /* ; */ ; */ ; SELECT 2", ["SELECT 1 /* ; /* ; */ ; */", "SELECT 2"]),
        ("SELECT 1 -- it's; /* no \n; SELECT 2", ["SELECT 1 -- it's; /* no", "SELECT 2"]),
        ("CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2); SELECT 3", [
            "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)", "SELECT 3",
        ]),
        (f"{ATOMIC}; SELECT 3", [ATOMIC, "SELECT 3"]),
        ("BEGIN; SELECT 1; END; SELECT CASE WHEN a THEN b END; SELECT 2", [
            "BEGIN", "SELECT 1", "END", "SELECT CASE WHEN a THEN b END", "SELECT 2",
        ]),
        ("", []),
    ],
)  # fmt: skip
def test_a_statement_ends_at_its_own_semicolon(text: str, statements: list[str]) -> None:
    assert list(statements_of(text)) == statements


@pytest.mark.parametrize(
    "text", ["SELECT 'a; SELECT 1", 'SELECT "a; SELECT 1', "SELECT 1 /* a; /* */ SELECT 2", "DO $$ a; $a$"]
)
def test_what_is_never_closed_is_refused(text: str) -> None:
    with pytest.raises(MigrationError, match="never closed"):
        statements_of(text)


def test_every_file_that_we_ship_is_taken_apart_without_loss() -> None:
    for file in sorted(sql_root().rglob("*.sql")):
        text = file.read_text()
        rest = text
        for statement in statements_of(text):
            before, found, rest = rest.partition(statement)
            assert found, file
            assert not statements_of(before), file
        assert not statements_of(rest), file
