"""What the owner of the database can do to the audit log, and that a verification finds every bit of it.

The manipulations are done as the database's owner with all triggers off, so that nothing but the log can tell.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from clientmgr.audit.anchoring import anchor_log
from clientmgr.audit.log import PLATFORM, AuditEntry, AuditLogger, AuditNotWrittenError
from clientmgr.audit.places.file import FilePlace
from clientmgr.audit.verification import FindingKind, Verdict, verify_log
from clientmgr.base.database import Database, Role
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from tests.databases import database_on
from tests.keys import TEST_KEY

LOGGER = AuditLogger(TEST_KEY.encode())
THIEF = AuditLogger(b"not the key")


@dataclass(frozen=True)
class Log:
    """A database with the platform's chain and those of tenants 7 and 8, anchored in a file."""

    database: Database
    superuser_url: str
    file: Path

    @classmethod
    def on(cls, server: EmbeddedPostgres, name: str, file: Path) -> "Log":
        return cls(database_on(server, name), server.superuser_url(name), file)

    def verify(self) -> Verdict:
        return verify_log(self.database, LOGGER, [FilePlace(self.file)])

    def anchor(self) -> None:
        anchor_log(self.database, LOGGER, [FilePlace(self.file)], actor="test")

    def append(self, *chains: int, logger: AuditLogger = LOGGER) -> None:
        with self.database.connect(Role.WRITER) as connection:
            logger.append(connection, [AuditEntry(chain, "ann", "test", "done", rows_affected=1) for chain in chains])

    def as_owner(self, *statements: str) -> None:
        """As an owner who is superuser too: the worst one that there can be."""
        with psycopg.connect(self.superuser_url) as connection:
            connection.execute("SET session_replication_role = replica")
            for statement in statements:
                name = connection.info.dbname
                connection.execute(statement.replace("{database}", name).encode())


def changed(*statements: str) -> Callable[[Log], None]:
    return lambda log: log.as_owner(*statements)


def whole_chain_written_with_another_key(log: Log) -> None:
    log.as_owner(
        "DELETE FROM clientmgr.audit_log WHERE customer_id = 7",
        "DELETE FROM clientmgr.audit_heads WHERE customer_id = 7",
    )
    log.append(7, 7, 7, 7, logger=THIEF)


def tail_cut_off_and_written_anew_by_the_application(log: Log) -> None:
    log.as_owner(*CUT_OFF)
    log.append(7, 7, 7)


def anchors_edited(log: Log) -> None:
    log.file.write_bytes(log.file.read_bytes().replace(b'"7":[4,', b'"7":[3,'))


def anchors_and_what_tells_of_them_removed(log: Log) -> None:
    log.file.unlink()
    log.as_owner("UPDATE clientmgr.audit_log SET details = '{}' WHERE action = 'audit.anchor'")


CUT_OFF = (
    "DELETE FROM clientmgr.audit_log WHERE customer_id = 7 AND seq > 2",
    "UPDATE clientmgr.audit_heads AS h SET seq = a.seq, hash = a.hash FROM clientmgr.audit_log AS a"
    " WHERE h.customer_id = 7 AND a.customer_id = 7 AND a.seq = 2",
)
FUNCTION = "CREATE OR REPLACE FUNCTION clientmgr.{} RETURNS trigger LANGUAGE plpgsql {} AS $$ BEGIN RETURN {}; END $$"
SWALLOWING = (
    FUNCTION.format("swallow()", "", "NULL"),
    "CREATE TRIGGER a_swallow BEFORE INSERT ON clientmgr.audit_log FOR EACH ROW EXECUTE FUNCTION clientmgr.swallow()",
)

MANIPULATIONS: dict[str, tuple[Callable[[Log], None], str]] = {
    "a row is changed": (
        changed("UPDATE clientmgr.audit_log SET outcome = 'failed' WHERE customer_id = 7 AND seq = 2"),
        "row changed",
    ),
    "a row in the middle is removed": (
        changed("DELETE FROM clientmgr.audit_log WHERE customer_id = 7 AND seq = 2"),
        "row removed",
    ),
    "a row is inserted and the end moved to it": (
        changed(
            "INSERT INTO clientmgr.audit_log SELECT customer_id, 5, recorded_at, actor, action, contact_hash,"
            " rows_affected, outcome, details, key_id, hash, sha256(hash) FROM clientmgr.audit_log"
            " WHERE customer_id = 7 AND seq = 4",
            "UPDATE clientmgr.audit_heads SET seq = 5, hash = sha256(hash) WHERE customer_id = 7",
        ),
        "row changed",
    ),
    "two rows are swapped": (
        changed(
            "UPDATE clientmgr.audit_log SET seq = seq + 100 WHERE customer_id = 7 AND seq IN (2, 3)",
            "UPDATE clientmgr.audit_log SET seq = 105 - seq WHERE customer_id = 7 AND seq > 100",
        ),
        "does not continue",
    ),
    "a row is moved to another customer": (
        changed("UPDATE clientmgr.audit_log SET customer_id = 9 WHERE customer_id = 7 AND seq = 1"),
        "the record of the chain's end is missing",
    ),
    "the recorded end is changed": (
        changed("UPDATE clientmgr.audit_heads SET hash = sha256(hash) WHERE customer_id = 7"),
        "the chain's end is not the one recorded",
    ),
    "the recorded end is removed": (
        changed("DELETE FROM clientmgr.audit_heads WHERE customer_id = 7"),
        "the record of the chain's end is missing",
    ),
    "the tail is cut off and the end set back": (changed(*CUT_OFF), "rows 3 to 4 are gone"),
    "the tail is cut off, and the application goes on": (
        tail_cut_off_and_written_anew_by_the_application,
        "cut off and written anew",
    ),
    "the platform's chain and its end are deleted": (
        changed(
            "DELETE FROM clientmgr.audit_log WHERE customer_id = 0",
            "DELETE FROM clientmgr.audit_heads WHERE customer_id = 0",
        ),
        "the platform's chain is missing",
    ),
    "the platform's chain is deleted and its end set to 0": (
        changed(
            "DELETE FROM clientmgr.audit_log WHERE customer_id = 0",
            "UPDATE clientmgr.audit_heads SET seq = 0, hash = '' WHERE customer_id = 0",
        ),
        "its end was set back to 0",
    ),
    "a tenant's chain is deleted and its end set to 0": (
        changed(
            "DELETE FROM clientmgr.audit_log WHERE customer_id = 7",
            "UPDATE clientmgr.audit_heads SET seq = 0, hash = '' WHERE customer_id = 7",
        ),
        "its end was set back to 0",
    ),
    "registry row, chain and end of a tenant are deleted": (
        changed(
            "DELETE FROM clientmgr.audit_log WHERE customer_id = 7",
            "DELETE FROM clientmgr.audit_heads WHERE customer_id = 7",
            "DELETE FROM clientmgr.tenants WHERE customer_id = 7",
        ),
        "the whole chain is gone; it had 4 rows",
    ),
    "everything is deleted": (
        changed("TRUNCATE clientmgr.audit_log, clientmgr.audit_heads, clientmgr.tenants CASCADE"),
        "the whole chain is gone",
    ),
    "an old backup of the log is put back": (
        changed(
            "TRUNCATE clientmgr.audit_log, clientmgr.audit_heads",
            "INSERT INTO clientmgr.audit_log SELECT * FROM old.audit_log",
            "INSERT INTO clientmgr.audit_heads SELECT * FROM old.audit_heads",
        ),
        "they were there when the chain was anchored",
    ),
    "a chain is replaced by one written with another key": (
        whole_chain_written_with_another_key,
        "written with another key",
    ),
    "the log is dropped": (changed("DROP TABLE clientmgr.audit_log CASCADE"), "the table clientmgr.audit_log is gone"),
    "a view stands in the table's place": (
        changed(
            "ALTER TABLE clientmgr.audit_log RENAME TO audit_log_hidden",
            "CREATE VIEW clientmgr.audit_log AS SELECT * FROM clientmgr.audit_log_hidden WHERE actor <> 'eve'",
            "GRANT SELECT ON clientmgr.audit_log TO clientmgr_reader",
        ),
        "audit_log is a view",
    ),
    "a child table adds rows of its own": (
        changed("CREATE TABLE clientmgr.more () INHERITS (clientmgr.audit_log)"),
        "child table that is not ours: more",
    ),
    "a trigger swallows new rows": (
        changed(*SWALLOWING),
        "a trigger that is not ours: a_swallow",
    ),
    "a rule swallows new rows": (
        changed("CREATE RULE swallow AS ON INSERT TO clientmgr.audit_log DO INSTEAD NOTHING"),
        "a rule that is not ours: swallow",
    ),
    "a policy hides rows": (
        changed(
            "ALTER TABLE clientmgr.audit_log ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY hide ON clientmgr.audit_log USING (customer_id <> 7)",
        ),
        "a policy that is not ours: hide",
    ),
    "the trigger that appends is switched off": (
        changed("ALTER TABLE clientmgr.audit_log DISABLE TRIGGER audit_log_append"),
        "the trigger audit_log_append on audit_log is switched off",
    ),
    "the triggers fire on replicas only": (
        changed("ALTER TABLE clientmgr.audit_log ENABLE REPLICA TRIGGER audit_log_unchanged"),
        "the trigger audit_log_unchanged on audit_log is switched off",
    ),
    "triggers are off for whoever logs in": (
        changed("ALTER ROLE clientmgr_writer IN DATABASE {database} SET session_replication_role = replica"),
        "for clientmgr_writer switches the triggers off",
    ),
    "the trigger that refuses changes is dropped": (
        changed("DROP TRIGGER audit_log_unchanged ON clientmgr.audit_log"),
        "the trigger audit_log_unchanged on audit_log is gone",
    ),
    "the trigger that refuses changes spares one column": (
        changed(
            "DROP TRIGGER audit_log_unchanged ON clientmgr.audit_log",
            "CREATE TRIGGER audit_log_unchanged BEFORE UPDATE OF actor OR DELETE OR TRUNCATE ON clientmgr.audit_log"
            " FOR EACH STATEMENT EXECUTE FUNCTION clientmgr.refuse_audit_change()",
        ),
        "the trigger audit_log_unchanged on audit_log is not as we made it",
    ),
    "the function that appends checks nothing": (
        changed(
            FUNCTION.format("append_to_audit_chain()", "SECURITY DEFINER SET search_path = pg_catalog, pg_temp", "NULL")
        ),
        "the function append_to_audit_chain is not as we made it",
    ),
    "the function that refuses changes allows them": (
        changed(FUNCTION.format("refuse_audit_change()", "SET search_path = pg_catalog, pg_temp", "NULL")),
        "the function refuse_audit_change is not as we made it",
    ),
    "the writer may change rows": (
        changed("GRANT UPDATE ON clientmgr.audit_log TO clientmgr_writer"),
        "clientmgr_writer may UPDATE on audit_log",
    ),
    "everybody may change one column of the ends": (
        changed("GRANT UPDATE (seq) ON clientmgr.audit_heads TO PUBLIC"),
        "PUBLIC may UPDATE on audit_heads",
    ),
    "the table is given to another owner": (
        changed("ALTER TABLE clientmgr.audit_log OWNER TO clientmgr_ddl"),
        "audit_log belongs to clientmgr_ddl",
    ),
    "a check refuses rows of one kind": (
        changed("ALTER TABLE clientmgr.audit_log ADD CONSTRAINT no CHECK (action <> 'contact.delete') NOT VALID"),
        "audit_log has a check that is not ours: no",
    ),
    "an index refuses rows of one kind": (
        changed("CREATE UNIQUE INDEX no ON clientmgr.audit_log ((1)) WHERE action = 'contact.delete'"),
        "audit_log has a refusing index that is not ours: no",
    ),
    "everybody may call the function that moves a chain's end": (
        changed("GRANT EXECUTE ON FUNCTION clientmgr.append_to_audit_chain() TO PUBLIC"),
        "PUBLIC may EXECUTE on append_to_audit_chain",
    ),
    "a view hides the trigger that swallows rows": (
        changed(
            *SWALLOWING,
            "CREATE SCHEMA shadow",
            "GRANT USAGE ON SCHEMA shadow TO PUBLIC",
            "CREATE VIEW shadow.pg_trigger AS SELECT * FROM pg_catalog.pg_trigger WHERE tgname <> 'a_swallow'",
            "GRANT SELECT ON shadow.pg_trigger TO PUBLIC",
            "ALTER DATABASE {database} SET search_path = shadow, pg_catalog, public",
        ),
        "a trigger that is not ours: a_swallow",
    ),
    "the whole schema is dropped": (
        changed("DROP SCHEMA clientmgr CASCADE"),
        "the table clientmgr.audit_log is gone",
    ),
    "the anchors are edited": (anchors_edited, "not signed by us"),
    "the anchors are removed": (lambda log: log.file.unlink(), "are gone; the log says that there were some"),
    "the anchors are removed with the rows that tell of them": (anchors_and_what_tells_of_them_removed, "row changed"),
}


@pytest.fixture(scope="module")
def prepared(
    postgres_server: EmbeddedPostgres, _template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Log]:
    """The log that all cases are copies of."""
    name = f"audited_{uuid.uuid4().hex[:8]}"
    execute(postgres_server, f"CREATE DATABASE {name} TEMPLATE {_template}")
    log = Log.on(postgres_server, name, tmp_path_factory.mktemp("anchors") / "anchors.jsonl")
    log.as_owner("INSERT INTO clientmgr.tenants (customer_id, status) VALUES (7, 'active'), (8, 'deleted')")
    log.append(7, 8, 7)
    log.anchor()
    log.as_owner(
        "CREATE SCHEMA old",
        "CREATE TABLE old.audit_log AS TABLE clientmgr.audit_log",
        "CREATE TABLE old.audit_heads AS TABLE clientmgr.audit_heads",
    )
    log.append(7, 7, PLATFORM)
    log.anchor()
    shutil.copy(log.file, log.file.with_suffix(".saved"))
    yield log
    execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def log(postgres_server: EmbeddedPostgres, prepared: Log) -> Iterator[Log]:
    source = prepared.database.url.rpartition("/")[2]
    name = f"case_{uuid.uuid4().hex[:8]}"
    execute(postgres_server, f"CREATE DATABASE {name} TEMPLATE {source}")
    shutil.copy(prepared.file.with_suffix(".saved"), prepared.file)
    yield Log.on(postgres_server, name, prepared.file)
    execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


def execute(server: EmbeddedPostgres, statement: str) -> None:
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(statement.encode())


def test_a_log_that_nobody_touched_is_intact(log: Log) -> None:
    verdict = log.verify()
    assert (verdict.state, verdict.first) == ("intact", [])
    assert (verdict.examined.rows, verdict.examined.chains, verdict.examined.anchors) == (8, 3, 1)
    log.append(7, 8, PLATFORM)
    assert log.verify().state == "intact", "it goes on from its anchor"


@pytest.mark.parametrize("what", MANIPULATIONS)
def test_it_is_found_when(log: Log, what: str) -> None:
    manipulate, expected = MANIPULATIONS[what]
    manipulate(log)
    verdict = log.verify()
    assert verdict.state == "damaged"
    assert [finding for finding in verdict.first if expected in finding.problem], verdict.first


@pytest.mark.parametrize(
    ("give", "take", "expected"),
    [
        ("GRANT postgres TO clientmgr_writer", "REVOKE postgres FROM clientmgr_writer", "is a member of a superuser"),
        ("ALTER ROLE clientmgr_ddl SUPERUSER", "ALTER ROLE clientmgr_ddl NOSUPERUSER", "is a superuser"),
        (
            "GRANT pg_write_all_data TO clientmgr_reader",
            "REVOKE pg_write_all_data FROM clientmgr_reader",
            "may write all tables",
        ),
    ],
    ids=["a superuser's member", "a superuser", "a writer of everything"],
)
def test_it_is_found_when_a_role_is_made(log: Log, give: str, take: str, expected: str) -> None:
    log.as_owner(give)
    try:
        problems = [finding.problem for finding in log.verify().first]
    finally:
        log.as_owner(take)  # roles are the whole server's
    assert [problem for problem in problems if expected in problem], problems
    assert log.verify().state == "intact"


def test_a_manipulated_log_is_never_anchored(log: Log) -> None:
    before = log.file.read_bytes()
    log.as_owner(*CUT_OFF)
    log.append(7, 7, 7)
    with pytest.raises(Exception, match="cut off and written anew"):
        log.anchor()
    assert log.file.read_bytes() == before


def test_anchors_that_are_gone_are_not_begun_again(log: Log) -> None:
    log.file.unlink()
    with pytest.raises(Exception, match="are gone; the log says that there were some"):
        log.anchor()
    assert not log.file.exists()


def test_an_operator_can_accept_a_restored_log_and_the_log_says_so(log: Log) -> None:
    MANIPULATIONS["an old backup of the log is put back"][0](log)
    anchor_log(log.database, LOGGER, [FilePlace(log.file)], actor="ann", accept="the disk was lost")
    assert log.verify().state == "intact"
    with log.database.connect(Role.READER) as connection:
        (row,) = connection.execute(
            "SELECT actor, outcome, details ->> 'reason' FROM clientmgr.audit_log WHERE outcome = 'accepted'"
        ).fetchall()
    assert row == ("ann", "accepted", "the disk was lost")


@pytest.mark.parametrize("what", ["a trigger swallows new rows", "a rule swallows new rows"])
def test_an_append_that_the_database_swallows_fails(log: Log, what: str) -> None:
    MANIPULATIONS[what][0](log)
    with pytest.raises(AuditNotWrittenError, match="kept 0 of 2 rows"):
        log.append(7, 8)


@pytest.mark.anyio
async def test_an_append_that_the_database_swallows_fails_for_those_who_must_not_block_too(log: Log) -> None:
    MANIPULATIONS["a trigger swallows new rows"][0](log)
    async with await log.database.connect_async(Role.WRITER) as connection:
        with pytest.raises(AuditNotWrittenError, match="kept 0 of 1 rows"):
            await LOGGER.append_async(connection, [AuditEntry(7, "ann", "test", "done")])
        await connection.rollback()


def test_a_place_that_can_not_be_read_is_no_proof_and_no_damage(log: Log) -> None:
    nowhere = FilePlace(log.file / "below a file")
    verdict = verify_log(log.database, LOGGER, [FilePlace(log.file), nowhere])
    assert verdict.state == "not proven"
    (finding,) = verdict.first
    assert (finding.kind, "can't be compared" in finding.problem) == (FindingKind.UNAVAILABLE, True)
