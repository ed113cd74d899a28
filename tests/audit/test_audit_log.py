"""The audit log: what it keeps, what it refuses, and what `verify` finds after somebody with all rights tampered."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clientmgr.audit.log import PLATFORM, AuditEntry, AuditLogger, AuditRecord, _as_text, _chained_text, read_log
from clientmgr.audit.verification import Finding, verify
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import SettingsError
from tests.examples import examples
from tests.keys import TEST_KEY

LOGGER = AuditLogger(TEST_KEY.encode())


def entry(customer_id: int = 7, **changes: Any) -> AuditEntry:
    return AuditEntry(**{"customer_id": customer_id, "actor": "ann", "action": "test", "outcome": "done", **changes})


def append(database: Database, *entries: AuditEntry, logger: AuditLogger = LOGGER) -> None:
    with database.connect(Role.WRITER) as connection:
        logger.append(connection, entries)


def findings(database: Database, customer_id: int | None = None) -> list[Finding]:
    with database.connect(Role.READER) as connection:
        return list(verify(connection, LOGGER, customer_id))


@pytest.fixture
def tamper(database: Database) -> Iterator[Callable[..., object]]:
    """Run SQL as a superuser with all triggers off: what a thief of the database could do."""
    with database.connect(Role.OWNER, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        yield connection.execute


@pytest.fixture
def three_rows(database: Database) -> None:
    append(database, entry(), entry(rows_affected=5), entry(details={"note": "x"}))


@settings(max_examples=examples(300), deadline=None)
@given(
    st.builds(
        AuditRecord,
        st.integers(0, 2**60),
        st.integers(1, 2**60),
        st.datetimes(timezones=st.just(UTC)),
        st.text(),
        st.text(),
        st.none() | st.text(),
        st.none() | st.integers(0, 2**60),
        st.text(),
        st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text(), max_size=3),
        st.text(),
        st.binary(max_size=32),
        st.just(b""),
    )
)
def test_what_is_chained_is_the_json_that_it_has_always_been(record: AuditRecord) -> None:
    values = [*(getattr(record, name) for name in ("customer_id", "seq")), _as_text(record.recorded_at)]
    values += [record.actor, record.action, record.contact_hash, record.rows_affected, record.outcome]
    values += [dict(record.details), record.key_id, record.previous_hash.hex()]
    assert _chained_text(record) == json.dumps(values, sort_keys=True, separators=(",", ":"))


def test_keeps_who_asked_what_came_of_it_and_contacts_only_as_hashes(database: Database) -> None:
    append(database, entry(action="contact.delete", contact_id=4711, rows_affected=3, details={"topic": "t"}))

    with database.connect(Role.READER) as connection:
        (record,) = read_log(connection, customer_id=7)
    assert (record.customer_id, record.seq, record.actor, record.action) == (7, 1, "ann", "contact.delete")
    assert (record.outcome, record.rows_affected, record.details) == ("done", 3, {"topic": "t"})
    assert record.contact_hash == LOGGER.contact_hash(7, 4711)
    with database.connect(Role.OWNER) as connection:
        (row,) = connection.execute("SELECT a::text FROM clientmgr.audit_log AS a WHERE customer_id = 7").fetchall()
    assert "4711" not in row[0]


def test_a_contact_hash_depends_on_customer_contact_and_key() -> None:
    hashes = {
        LOGGER.contact_hash(1, 42),
        LOGGER.contact_hash(2, 42),
        LOGGER.contact_hash(1, 43),
        AuditLogger(b"other").contact_hash(1, 42),
    }
    assert len(hashes) == 4


def test_refuses_to_work_without_a_key() -> None:
    with pytest.raises(SettingsError, match="AUDIT_HASH_KEY"):
        AuditLogger(b"")


def test_an_untouched_log_is_intact(database: Database, three_rows: None) -> None:
    append(database, entry(8), entry(PLATFORM), entry(8))
    assert findings(database) == []


def test_rows_of_several_customers_in_one_call_continue_each_chain(database: Database) -> None:
    append(database, entry(1), entry(2), entry(1))
    append(database, entry(2), entry(1))

    with database.connect(Role.READER) as connection:
        numbers = [(record.customer_id, record.seq) for record in read_log(connection, oldest_first=True)]
    assert numbers == [(PLATFORM, 1), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]
    assert findings(database) == []


def test_concurrent_writers_of_one_chain_leave_it_whole(database: Database) -> None:
    def write(_: int) -> None:
        for _ in range(10):
            append(database, entry(1), entry(2))

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(write, range(4)))

    assert findings(database) == []
    with database.connect(Role.READER) as connection:
        assert len([record for record in read_log(connection) if record.customer_id != PLATFORM]) == 80


def test_a_rolled_back_entry_leaves_no_gap(database: Database, three_rows: None) -> None:
    with database.connect(Role.WRITER) as connection:
        LOGGER.append(connection, [entry()])
        connection.rollback()
    append(database, entry())

    assert findings(database) == []


@pytest.mark.anyio
async def test_the_async_form_writes_the_same_chain(database: Database, three_rows: None) -> None:
    async with await database.connect_async(Role.WRITER) as connection:
        await LOGGER.append_async(connection, [entry(), entry(8)])

    assert findings(database) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            "UPDATE clientmgr.audit_log SET outcome = 'failed' WHERE customer_id = 7 AND seq = 2",
            Finding(7, 2, "row changed"),
        ),
        (
            "UPDATE clientmgr.audit_log SET rows_affected = NULL WHERE customer_id = 7 AND seq = 2",
            Finding(7, 2, "row changed"),
        ),
        (
            "UPDATE clientmgr.audit_log SET details = '{}' WHERE customer_id = 7 AND seq = 3",
            Finding(7, 3, "row changed"),
        ),
        (
            "UPDATE clientmgr.audit_log SET recorded_at = recorded_at - interval '1 microsecond' "
            "WHERE customer_id = 7 AND seq = 1",
            Finding(7, 1, "row changed"),
        ),
        ("DELETE FROM clientmgr.audit_log WHERE customer_id = 7 AND seq = 1", Finding(7, 1, "row removed")),
        ("DELETE FROM clientmgr.audit_log WHERE customer_id = 7 AND seq = 2", Finding(7, 2, "row removed")),
        ("DELETE FROM clientmgr.audit_log WHERE customer_id = 7 AND seq = 3", Finding(7, 3, "row removed")),
        ("DELETE FROM clientmgr.audit_log WHERE customer_id = 7 AND seq >= 2", Finding(7, 2, "rows 2 to 3 removed")),
        ("DELETE FROM clientmgr.audit_log WHERE customer_id = 7", Finding(7, 1, "rows 1 to 3 removed")),
        (
            "INSERT INTO clientmgr.audit_log SELECT customer_id, 4, recorded_at, actor, action, contact_hash, "
            "rows_affected, outcome, details, key_id, hash, hash FROM clientmgr.audit_log "
            "WHERE customer_id = 7 AND seq = 3",
            Finding(7, 4, "row inserted"),
        ),
        (
            "INSERT INTO clientmgr.audit_log SELECT customer_id, 0, recorded_at, actor, action, contact_hash, "
            "rows_affected, outcome, details, key_id, hash, hash FROM clientmgr.audit_log "
            "WHERE customer_id = 7 AND seq = 3",
            Finding(7, 0, "row inserted"),
        ),
        (
            "DELETE FROM clientmgr.audit_heads WHERE customer_id = 7",
            Finding(7, 3, "the record of the chain's end is missing"),
        ),
    ],
)
def test_verify_says_which_row_was_tampered_with(
    database: Database, three_rows: None, tamper: Callable[..., object], change: str, found: Finding
) -> None:
    append(database, entry(8))

    tamper(change)

    assert findings(database) == [found]
    assert findings(database, 7) == [found]
    assert findings(database, 8) == []


def test_verify_finds_an_inserted_row_even_when_the_recorded_end_was_moved_with_it(
    database: Database, three_rows: None, tamper: Callable[..., object]
) -> None:
    tamper(
        "INSERT INTO clientmgr.audit_log SELECT customer_id, 4, recorded_at, actor, action, contact_hash, "
        "rows_affected, outcome, details, key_id, hash, sha256(hash) FROM clientmgr.audit_log WHERE seq = 3"
    )
    tamper("UPDATE clientmgr.audit_heads SET seq = 4, hash = sha256(hash) WHERE customer_id = 7")

    assert findings(database) == [Finding(7, 4, "row changed")]


def test_verify_finds_a_registered_tenant_whose_whole_chain_is_gone(
    database: Database, tamper: Callable[..., object]
) -> None:
    tamper("INSERT INTO clientmgr.tenants (customer_id, status) VALUES (9, 'active')")
    assert [finding.customer_id for finding in findings(database)] == [9]


def test_verify_finds_a_schema_whose_chain_and_registry_row_are_gone(
    database: Database, tamper: Callable[..., object]
) -> None:
    tamper("CREATE SCHEMA tenant_9")
    tamper("CREATE SCHEMA tenant_09")  # no tenant's
    assert [finding.customer_id for finding in findings(database)] == [9]
    assert findings(database, 8) == []


def test_rows_written_with_another_key_are_named_as_such(database: Database, three_rows: None) -> None:
    append(database, entry(), logger=AuditLogger(b"another key"))

    (finding,) = findings(database)
    assert (finding.seq, "another key" in finding.problem) == (4, True)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE clientmgr.audit_log SET outcome = 'x'",
        "DELETE FROM clientmgr.audit_log",
        "TRUNCATE clientmgr.audit_log",
    ],
)
def test_the_database_refuses_to_change_the_past_whoever_asks(
    database: Database, three_rows: None, role: Role, statement: str
) -> None:
    with database.connect(role) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement)


@pytest.mark.parametrize(("seq", "previous"), [(3, "\\x00"), (9, "hash"), (4, "\\x00")])
def test_the_database_refuses_a_row_that_does_not_continue_its_chain(
    database: Database, three_rows: None, seq: int, previous: str
) -> None:
    source = "hash" if previous == "hash" else f"'{previous}'::bytea"
    with database.connect(Role.WRITER) as connection, pytest.raises(psycopg.errors.IntegrityError):
        connection.execute(
            "INSERT INTO clientmgr.audit_log SELECT customer_id, %s, recorded_at, actor, action, contact_hash, "
            f"rows_affected, outcome, details, key_id, {source}, hash FROM clientmgr.audit_log WHERE seq = 3",
            (seq,),
        )
