"""A deletion removes all that belongs to a customer, and goes on wherever it was killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis

from clientmgr.audit.log import AuditLogger
from clientmgr.audit.verification import verify
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import MigrationError
from clientmgr.base.settings import Settings
from clientmgr.base.stopping import StoppedError
from clientmgr.contracts.lifecycle import TenantRequest
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants import customer_data
from clientmgr.tenants.account_deletion import Step
from clientmgr.tenants.results import Change
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.waiting import eventually

Query = Callable[..., list[tuple[Any, ...]]]

DELETE_UNTIL = """
import os, signal, sys
from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings
from clientmgr.tenants.schema_manager import TenantSchemaManager

def kill_after(step):
    if step.name == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)

settings = load_settings()
TenantSchemaManager(Database.from_settings(settings), settings).delete(7, actor="killed", on_step=kill_after)
"""

A_DEAD_LETTER = """
INSERT INTO clientmgr.dead_letter_queue (group_id, topic_id, c_offset, partition_id, host_id, user_id, transaction_id,
    payload, attributes, error_class, exception, attempts, published_at)
VALUES ('g', 1, %s, 0, %s, '', gen_random_uuid(), %s, '{}', '', '', 1, now())
"""


def flippers(database: Database, query: Query, *customers: int) -> None:
    """The table as the part of the system that owns it may make it, after the next start."""
    query("DROP TABLE IF EXISTS clientmgr.flippers")
    query("CREATE TABLE clientmgr.flippers (customer_id bigint, name text)")
    migrate_database(database)
    for customer in customers:
        query("INSERT INTO clientmgr.flippers VALUES (%s, 'USE_POSTGRES_DEVICE_MAPPER')", customer)


def test_what_belongs_to_the_customer_elsewhere_goes_and_what_is_others_stays(
    database: Database, manager: TenantSchemaManager, query: Query
) -> None:
    flippers(database, query, 7, 8, 7)
    manager.activate([7, 8], actor="test")
    for offset, customer in enumerate(("7", "8", "7", "77")):
        query(A_DEAD_LETTER, offset, customer, b"secret")

    assert manager.delete(7, actor="test").change is Change.DROPPED

    assert query("SELECT customer_id FROM clientmgr.flippers") == [(8,)]
    assert query("SELECT host_id FROM clientmgr.dead_letter_queue ORDER BY 1") == [("77",), ("8",)]
    details = query("SELECT details FROM clientmgr.audit_log WHERE outcome = 'dropped'")[0][0]
    assert details == {"flippers": 2, "dead_letter_queue": 2}


def test_messages_without_an_ordering_key_go_by_what_they_say(
    manager: TenantSchemaManager, settings: Settings, database: Database, query: Query
) -> None:
    manager.activate([7, 8], actor="test")
    others = [b'{"customerId": 8}', b'{"customerId": 77}', b"\xff\x00 not even text", b"[]"]
    for offset, payload in enumerate([b'{"customerId":7,"pushToken":"t"}', b'{ "a": 1, "customerId" : "7" }', *others]):
        query(A_DEAD_LETTER, offset, "", payload)

    manager.delete(7, actor="test")
    assert [row[0] for row in query("SELECT payload FROM clientmgr.dead_letter_queue ORDER BY c_offset")] == others

    # One that comes late is found by who looks for what was left.
    query(A_DEAD_LETTER, 99, "", b'{"customerId":7}')
    with database.connect(Role.DDL) as connection:
        assert customer_data.deleted_customers_with_rows(connection) == {7}


def test_every_table_with_rows_of_customers_that_exists_lets_a_deletion_remove_them(database: Database) -> None:
    with database.connect(Role.DDL) as connection:
        names = [rows.table for rows in customer_data.tables(connection)]
        granted = connection.execute(
            "SELECT n, has_table_privilege('clientmgr.' || n, 'DELETE') FROM unnest(%s::text[]) AS n"
            " WHERE to_regclass('clientmgr.' || n) IS NOT NULL",
            (names,),
        ).fetchall()
    assert len(granted) >= 3
    assert all(allowed for _, allowed in granted), granted


def test_a_new_table_with_a_customer_id_is_emptied_though_nobody_named_it(
    database: Database, manager: TenantSchemaManager, query: Query
) -> None:
    query(
        "CREATE TABLE clientmgr.albums"
        " (customer_id bigint, id bigint PRIMARY KEY, previous bigint REFERENCES clientmgr.albums)"
    )
    query("CREATE TABLE clientmgr.pictures (customer_id bigint, album bigint REFERENCES clientmgr.albums)")
    query("CREATE TABLE clientmgr.visits (customer_id bigint, day integer) PARTITION BY LIST (day)")
    query("CREATE TABLE clientmgr.visits_1 PARTITION OF clientmgr.visits FOR VALUES IN (1)")
    query("CREATE VIEW clientmgr.latest_albums AS SELECT customer_id, id FROM clientmgr.albums")
    migrate_database(database)
    manager.activate([7, 8], actor="test")
    for customer in (7, 8):
        query("INSERT INTO clientmgr.albums VALUES (%s, %s), (%s, %s)", customer, customer, customer, customer + 10)
        query("INSERT INTO clientmgr.pictures VALUES (%s, %s)", customer, customer)
        query("INSERT INTO clientmgr.visits VALUES (%s, 1), (%s, 1), (%s, 1)", customer, customer, customer)

    assert manager.delete(7, actor="test").change is Change.DROPPED

    for table, left in {"albums": 2, "pictures": 1, "visits": 3}.items():
        assert query(f"SELECT customer_id, count(*) FROM clientmgr.{table} GROUP BY 1") == [(8, left)], table
    details = query("SELECT details FROM clientmgr.audit_log WHERE outcome = 'dropped'")[0][0]
    assert details == {"albums": 2, "pictures": 1, "visits": 3}


def test_only_tables_that_say_why_outlive_a_customer(database: Database, query: Query) -> None:
    with_customers = query(
        "SELECT table_name, data_type FROM information_schema.columns JOIN information_schema.tables"
        " USING (table_schema, table_name) WHERE table_schema = 'clientmgr' AND table_type = 'BASE TABLE'"
        " AND column_name = 'customer_id'"
    )
    assert {kind for _, kind in with_customers} == {"bigint"}, "a customer_id of another type would not be found"
    with database.connect(Role.DDL) as connection:
        emptied = {rows.table for rows in customer_data.tables(connection)}
    assert {table for table, _ in with_customers} - emptied == customer_data.KEPT.keys()
    assert emptied >= {*customer_data.MESSAGES, "flippers", "orphan_candidates", "orphan_candidates_staged"}


def test_what_points_at_a_table_is_emptied_before_it() -> None:
    references = {"a": [], "b": ["a", "tenants"], "c": ["a", "b"], "batch_failures": [], "z": []}
    order = list(customer_data.in_order_of_deletion(references))
    assert order.index("c") < order.index("b") < order.index("a")
    assert order[-1] == "batch_failures"
    with pytest.raises(MigrationError, match=r"circle.*: a, b, a|circle.*: b, a, b"):
        customer_data.in_order_of_deletion({"a": ["b"], "b": ["a"]})


def test_what_redis_holds_of_the_customer_goes(
    database: Database, settings: Settings, redis_server: EmbeddedRedis
) -> None:
    settings = settings.model_copy(update={"redis_url": redis_server.url})
    client = redis.Redis.from_url(redis_server.url)
    client.set("clientmgr:tenant:7", "x")
    client.set("clientmgr:tenant:77", "x")
    manager = TenantSchemaManager(database, settings)
    manager.activate([7], actor="test")

    manager.delete(7, actor="test")

    assert (client.exists("clientmgr:tenant:7"), client.exists("clientmgr:tenant:77")) == (0, 1)
    client.close()


def test_a_redis_that_does_not_answer_leaves_the_deletion_to_be_finished(
    database: Database, settings: Settings, manager: TenantSchemaManager, query: Query
) -> None:
    class Silent:
        def invalidate(self) -> None: ...

    away = settings.model_copy(update={"redis_url": "redis://127.0.0.1:1"})
    manager.activate([7], actor="test")

    result = TenantSchemaManager(database, away, cache_invalidator=Silent()).delete(7, actor="test")

    assert result.change is Change.FAILED
    assert "Redis" in (result.error or "")
    assert query("SELECT status FROM clientmgr.tenants") == [("deleting",)]
    assert manager.delete(7, actor="test").change is Change.ALREADY_ABSENT
    assert query("SELECT status FROM clientmgr.tenants") == [("deleted",)]


def test_others_are_made_to_forget_the_customer_before_the_result_is_recorded(
    manager: TenantSchemaManager, query: Query
) -> None:
    seen = []
    manager.activate([7], actor="test")

    def release(customer: int) -> None:
        seen.append((customer, query("SELECT status FROM clientmgr.tenants")[0][0]))

    manager.delete(7, actor="test", release=release)
    assert seen == [(7, "deleting")]


@pytest.mark.parametrize("step", [step for step in Step if step is not Step.COMPLETED], ids=lambda step: step.name)
def test_killed_after_any_step_it_is_deleting_until_asking_again_finishes_it(
    database: Database, settings: Settings, manager: TenantSchemaManager, query: Query, step: Step
) -> None:
    flippers(database, query, 7, 8)
    manager.activate([7, 8], actor="test")
    query("INSERT INTO \"tenant_7\".devices (application_code, client_id) VALUES ('A', 'one')")

    process = subprocess.run(
        [sys.executable, "-c", DELETE_UNTIL, step.name], env={**os.environ, **settings.environment()}, check=False
    )

    assert process.returncode == -signal.SIGKILL
    eventually(lambda: _alone(query), "the killed one's backend is gone")
    assert query("SELECT status FROM clientmgr.tenants WHERE customer_id = 7") == [("deleting",)]

    assert manager.delete(7, actor="next").change in (Change.DROPPED, Change.ALREADY_ABSENT)

    assert query("SELECT customer_id, status FROM clientmgr.tenants ORDER BY 1") == [(7, "deleted"), (8, "active")]
    assert query("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tenant\\_%%'") == [("tenant_8",)]
    assert query("SELECT customer_id FROM clientmgr.flippers") == [(8,)]
    outcomes = [row[0] for row in query("SELECT outcome FROM clientmgr.audit_log WHERE customer_id = 7 ORDER BY seq")]
    assert outcomes[:2] == ["created", "intended"]
    assert outcomes.count("dropped") == 1, "the devices went once, and were counted once"
    assert outcomes[-1] == "completed"
    with database.connect(Role.READER) as connection:
        assert not list(verify(connection, AuditLogger.from_settings(settings)))


@pytest.mark.parametrize(
    ("looks", "outcomes", "schema_stays"),
    [
        (0, ["created"], True),
        (1, ["created", "intended", "stopped"], True),
        (2, ["created", "intended", "dropped", "stopped"], False),
    ],
    ids=["before it begins", "before anything is dropped", "before cached data goes"],
)
def test_stopped_it_destroys_nothing_more_and_asking_again_finishes_it(
    manager: TenantSchemaManager, query: Query, looks: int, outcomes: list[str], schema_stays: bool
) -> None:
    manager.activate([7], actor="test")
    left = iter([True] * looks)

    with pytest.raises(StoppedError, match="stopped on request"):
        manager.delete_as_asked(TenantRequest(CustomerId(7), "test"), still_wanted=lambda: next(left, False))

    audited = [row[0] for row in query("SELECT outcome FROM clientmgr.audit_log WHERE customer_id = 7 ORDER BY seq")]
    assert audited == outcomes
    assert bool(query("SELECT 1 FROM pg_namespace WHERE nspname = 'tenant_7'")) == schema_stays
    manager.delete(7, actor="next")
    assert query("SELECT status FROM clientmgr.tenants WHERE customer_id = 7") == [("deleted",)]


def _alone(query: Query) -> bool:
    others = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    return query(others) == [(0,)]
