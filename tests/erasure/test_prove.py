"""A proof finds whatever is left of a contact, wherever it was left, and says nothing is left when nothing is."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError, UnknownTenantError
from clientmgr.base.migrations import ensure_database_grants
from clientmgr.base.settings import Settings, load_settings
from clientmgr.erasure.proof import prove_account, prove_contact
from clientmgr.erasure.report import Report, as_text, check
from clientmgr.erasure.sweep import sweep
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.citus.cluster import ON_CLUSTER
from tests.conftest import _throwaway_database
from tests.erasure.planting import (
    CONTACT,
    CUSTOMER,
    DELETED_AT,
    EMAIL,
    OTHER,
    PLANTS,
    TOKEN,
    Ground,
    add_device,
    event,
    planted,
    prepare,
)
from tests.keys import TEST_KEY


@pytest.fixture
def ground(database: Database, settings_for: Callable[[Database], Settings], redis_server: EmbeddedRedis) -> Ground:
    settings = settings_for(database).model_copy(update={"redis_url": redis_server.url})
    return Ground(database, settings)


@pytest.fixture
def deleted(ground: Ground) -> Ground:
    prepare(ground)
    return ground


def prove(ground: Ground, *texts: str, contact: int = CONTACT) -> Report:
    return prove_contact(ground.stores, CUSTOMER, contact, actor="test", texts=texts)


def found(report: Report) -> dict[str, int]:
    return {place.place: place.found for place in report.places if place.found}


def test_nothing_but_hashes_is_left_of_a_deleted_contact(deleted: Ground) -> None:
    report = prove(deleted, TOKEN, EMAIL)
    assert report.verdict == "nothing left"
    assert found(report) == {}
    hashes = {place.place: place.hashes for place in report.places if place.hashes}
    assert hashes == {
        "clientmgr.audit_log": 1,
        "tenant_1007.contact_links": 1,
        "tenant_1007.contact_tombstones": 1,
        "tenant_1007.device_tombstones": 1,
        "tenant_1007.push_token_claims": 1,
    }
    assert [row.action for row in report.audit_rows] == ["contact.delete"]
    assert report.audit_chain.is_intact


@pytest.fixture(scope="module")
def shared(
    postgres_server: EmbeddedPostgres,
    _template: str,
    redis_server: EmbeddedRedis,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ground]:
    """One ground for all plants: each is removed again."""
    for database in _throwaway_database(postgres_server, _template):
        with database.connect(Role.OWNER) as connection:
            ensure_database_grants(connection)
        settings = load_settings(
            database_url=database.url,
            data_dir=tmp_path_factory.mktemp("ground"),
            audit_hash_key=TEST_KEY,
            redis_url=redis_server.url,
        )
        ground = Ground(database, settings)
        prepare(ground)
        yield ground


@pytest.mark.parametrize("name", PLANTS)
def test_whatever_is_left_is_found_and_gone_when_it_is_removed(shared: Ground, name: str) -> None:
    for place in planted(shared, name):
        report = prove(shared)
        assert found(report) == {place: 1}
        assert report.verdict == f"left: {place} (1)"
    assert prove(shared).verdict == "nothing left"


def test_a_text_is_looked_for_in_every_column_of_every_table(deleted: Ground) -> None:
    deleted.execute("CREATE TABLE clientmgr.of_tomorrow (id int, note text, raw bytea, doc jsonb, tags text[])")
    for column, value in (
        ("note", f"write to {EMAIL}"),
        ("raw", f"\0{EMAIL}".encode()),
        ("doc", f'{{"to": ["{EMAIL}"]}}'),
        ("tags", [EMAIL]),
    ):
        remove = deleted.insert("clientmgr.of_tomorrow", **{column: value})
        assert found(prove_with_rights(deleted, EMAIL)) == {"clientmgr.of_tomorrow": 1}, column
        remove()
    assert found(prove_with_rights(deleted, EMAIL)) == {}


def prove_with_rights(ground: Ground, *texts: str) -> Report:
    ground.execute("GRANT SELECT ON clientmgr.of_tomorrow TO clientmgr_reader")
    return prove(ground, *texts)


def test_a_text_beyond_ascii_is_found_as_json_writes_it(deleted: Ground) -> None:
    remove = deleted.message(b'{"customerId": 9, "name": "Andr\\u00e9 \\"A\\""}', host="9")
    assert found(prove(deleted, 'André "A"')) == {"clientmgr.outbox_message_t": 1}
    remove()
    assert found(prove(deleted, 'André "A"')) == {}


def test_a_new_table_is_looked_at_without_anybody_remembering_it(deleted: Ground) -> None:
    deleted.execute("CREATE TABLE clientmgr.of_tomorrow (customer_id bigint, contact_id bigint, contact_hash bytea)")
    deleted.insert("clientmgr.of_tomorrow", customer_id=CUSTOMER, contact_id=CONTACT)
    deleted.insert("clientmgr.of_tomorrow", customer_id=9, contact_id=CONTACT)
    deleted.insert("clientmgr.of_tomorrow", customer_id=CUSTOMER, contact_hash=deleted.contact_hash)
    report = prove_with_rights(deleted)
    assert found(report) == {"clientmgr.of_tomorrow": 1}
    assert [place.hashes for place in report.places if place.place == "clientmgr.of_tomorrow"] == [1]


def test_every_table_has_a_line(deleted: Ground) -> None:
    tables = deleted.execute(
        "SELECT table_schema || '.' || table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        " AND table_schema IN ('clientmgr', 'live', 'tenant_1007')"
    )
    report = prove(deleted)
    assert {name for (name,) in tables} <= {place.place for place in report.places}
    assert [place.place for place in report.places if place.state == "could not be looked at"] == []


def test_a_place_that_can_not_be_read_is_no_proof(deleted: Ground) -> None:
    deleted.execute("CREATE TABLE clientmgr.of_tomorrow (note text)")
    assert prove(deleted).verdict == "not proven: clientmgr.of_tomorrow could not be looked at"


def test_a_redis_that_does_not_answer_is_no_proof(deleted: Ground) -> None:
    away = replace(deleted, settings=deleted.settings.model_copy(update={"redis_url": "redis://127.0.0.1:1"}))
    assert prove(away).verdict == "not proven: Redis could not be looked at"


def test_what_dagster_keeps_compressed_is_unpacked(deleted: Ground) -> None:
    deleted.execute("CREATE TABLE dagster.snapshots (id int, snapshot_body bytea)")
    deleted.execute("ALTER TABLE dagster.snapshots OWNER TO clientmgr_dagster")
    deleted.insert("dagster.snapshots", id=1, snapshot_body=zlib.compress(f"to {EMAIL}".encode()))
    assert found(prove(deleted, EMAIL)) == {"Dagster's snapshots": 1}


def test_somebody_elses_data_is_not_found(deleted: Ground) -> None:
    deleted.message(event("contactLinked", {"contactId": OTHER}, client="somebody-elses-client"))
    deleted.message({"customerId": 9, "contactId": CONTACT}, host="9", user=str(CONTACT))
    assert prove(deleted).verdict == "nothing left"


def test_a_device_that_came_back_is_not_what_was_deleted(deleted: Ground) -> None:
    deleted.message(event("registered", {}, at=int(DELETED_AT.timestamp() * 1000) + 1000))
    assert prove(deleted).verdict == "nothing left"


def test_leftovers_within_the_erasure_period_are_due(deleted: Ground) -> None:
    deleted.message(event("contactLinked", {"contactId": CONTACT}))
    deleted.execute("UPDATE tenant_1007.contact_tombstones SET recorded_at = now()")
    report = prove(deleted)
    assert report.outcome == "within the erasure period"
    assert "clientmgr.outbox_message_t (1), due until" in report.verdict


def test_before_the_deletion_it_says_what_is_kept(ground: Ground) -> None:
    prepare(ground, deleted=False)
    ground.message(event("registered", {"hardwareId": "hw"}))
    report = prove(ground)
    assert found(report) == {
        "tenant_1007.devices": 1,
        "tenant_1007.contact_links": 1,
        "clientmgr.outbox_message_t": 1,
    }
    assert report.notes == ["No deletion of this contact is recorded."]


def test_a_contact_that_never_existed_is_said_to_be_one(deleted: Ground) -> None:
    report = prove(deleted, contact=99_999)
    assert report.verdict == "nothing left"
    assert "never existed here" in report.notes[0]


def test_an_unknown_customer_is_refused(deleted: Ground) -> None:
    with pytest.raises(UnknownTenantError, match="customer 9 was never activated"):
        prove_contact(deleted.stores, CustomerId(9), 1, actor="test")


def test_a_broken_audit_chain_is_no_proof(deleted: Ground) -> None:
    deleted.execute("ALTER TABLE clientmgr.audit_log DISABLE TRIGGER USER")
    deleted.execute("UPDATE clientmgr.audit_log SET rows_affected = 0 WHERE action = 'contact.delete'")
    deleted.execute("ALTER TABLE clientmgr.audit_log ENABLE TRIGGER USER")
    assert prove(deleted).verdict == "not proven: the audit log is not as it was written"


def test_every_changed_byte_of_a_report_is_noticed(deleted: Ground) -> None:
    text = as_text(prove(deleted, EMAIL))
    assert check(text, deleted.settings).verdict == "nothing left"
    assert EMAIL not in text
    step = max(1, len(text) // 60)
    for place in range(0, len(text), step):
        changed = text[:place] + ("x" if text[place] != "x" else "y") + text[place + 1 :]
        with pytest.raises(InvalidInputError):
            check(changed, deleted.settings)
    with pytest.raises(InvalidInputError, match="was changed"):
        check(text.replace('"verdict": "nothing left"', '"verdict": "nothing  left"'), deleted.settings)
    with pytest.raises(InvalidInputError):
        check(text + " ", deleted.settings)


def test_a_report_signed_with_another_key_is_refused(deleted: Ground, database: Database) -> None:
    text = as_text(prove(deleted))
    stranger = deleted.settings.model_copy(update={"audit_hash_key": type(deleted.settings.audit_hash_key)("another")})
    with pytest.raises(InvalidInputError, match="a report signed with the key"):
        check(text, stranger)


def test_proving_is_recorded_and_changes_nothing_else(deleted: Ground) -> None:
    prove(deleted)
    rows = deleted.execute(
        "SELECT actor, action, outcome, contact_hash FROM clientmgr.audit_log WHERE action = 'contact.prove'"
    )
    assert rows == [("test", "contact.prove", "nothing left", deleted.keys.audit.contact_hash(CUSTOMER, CONTACT))]


def test_an_account_is_proven_gone(deleted: Ground) -> None:
    deleted.message(event("registered", {}))
    before = prove_account(deleted.stores, CUSTOMER, actor="test")
    assert before.outcome == "left"
    assert before.notes == ["The account is not deleted: it is active."]
    TenantSchemaManager(deleted.database, deleted.settings).delete(CUSTOMER, actor="test")
    deleted.execute("UPDATE clientmgr.tenants SET deleted_at = now() - interval '2 days'")
    deleted.execute("UPDATE clientmgr.outbox_message_t SET published_at = now() - interval '3 days'")
    left = prove_account(deleted.stores, CUSTOMER, actor="test")
    assert found(left) == {"clientmgr.outbox_message_t": 1}
    deleted.execute("DELETE FROM clientmgr.outbox_message_t")
    after = prove_account(deleted.stores, CUSTOMER, actor="test")
    assert after.verdict == "nothing left"
    assert "account.delete" in [row.action for row in after.audit_rows]
    kept = {place.place: place.kept for place in after.places if place.kept}
    assert kept.keys() >= {"clientmgr.tenants", "clientmgr.audit_log"}


def test_what_the_sweep_leaves_of_a_message_is_nothing(deleted: Ground) -> None:
    deleted.message(event("contactLinked", {"contactId": CONTACT}))
    deleted.message({"customerId": CUSTOMER, "contactId": CONTACT}, topic="sending-mg-errors", host="9", user="")
    assert prove(deleted).outcome == "left"
    sweep(deleted.database, deleted.settings)
    assert prove(deleted).verdict == "nothing left"
    TenantSchemaManager(deleted.database, deleted.settings).delete(CUSTOMER, actor="test")
    sweep(deleted.database, deleted.settings)
    assert prove_account(deleted.stores, CUSTOMER, actor="test").verdict == "nothing left"


def test_history_may_name_a_deleted_account_by_its_number_and_nobody_of_it(deleted: Ground, tmp_path: Path) -> None:
    TenantSchemaManager(deleted.database, deleted.settings).delete(CUSTOMER, actor="test")
    deleted.execute("CREATE TABLE dagster.event_logs (id int, event text, partition text)")
    deleted.execute("ALTER TABLE dagster.event_logs OWNER TO clientmgr_dagster")
    deleted.execute("CREATE TABLE dagster.dynamic_partitions (partition text)")
    deleted.execute("ALTER TABLE dagster.dynamic_partitions OWNER TO clientmgr_dagster")
    deleted.execute("INSERT INTO dagster.event_logs VALUES (1, 'x', %s)", str(CUSTOMER))
    (tmp_path / "writer.log").write_text(f"customer {CUSTOMER} was deleted\n")
    report = prove_account(deleted.stores, CUSTOMER, actor="test", texts=[EMAIL])
    assert report.verdict == "nothing left"
    kept = {place.place: place.kept for place in report.places if place.kept}
    assert (kept["Dagster's event_logs"], kept["files of the data folder"]) == (1, 1)

    deleted.execute("INSERT INTO dagster.dynamic_partitions VALUES (%s)", str(CUSTOMER))
    deleted.execute("INSERT INTO dagster.event_logs VALUES (2, %s, NULL)", f"to {EMAIL}")
    (tmp_path / "writer.log").write_text(f'{{"customerId": {CUSTOMER}, "clientId": "c"}}\n')
    assert found(prove_account(deleted.stores, CUSTOMER, actor="test", texts=[EMAIL])) == {
        "Dagster's dynamic_partitions": 1,
        "Dagster's event_logs": 1,
        "files of the data folder": 1,
    }


@pytest.mark.skipif(ON_CLUSTER, reason="what the nodes' planners remember is not looked at yet: docs/citus.md says so")
def test_what_the_planner_remembers_of_a_contact_is_found_until_the_table_is_analysed(deleted: Ground) -> None:
    add_device(deleted, CONTACT, "another-client", "e" * 64)()
    remove = add_device(deleted, CONTACT, "another-client", "e" * 64)
    deleted.execute("ANALYZE tenant_1007.devices")
    remove()
    assert found(prove(deleted)) == {"what PostgreSQL's planner remembers": 1}
    deleted.execute("ANALYZE tenant_1007.devices")
    assert prove(deleted).verdict == "nothing left"
