"""Activation and deletion by message, on a real log and registry: through the sensors, their runs, and every crash."""

import asyncio
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from clientmgr.audit.log import AuditLogger
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker import dead_letter_actions
from clientmgr.broker.dead_letters import Selection
from clientmgr.contracts.topics import ACCOUNT_DELETION, ACTIVATE_CUSTOMER, WRITER
from clientmgr.operations.failures import finding
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.defs.tenancy.message_sensors import account_deletion_sensor, customer_activation_sensor
from clientmgr_dagster.defs.tenancy.sensors import tenant_registry_sensor
from streaming import republisher, writer
from streaming.runtime.daemon import Daemon, consume_until_stopped
from tests.dagster.rig import Rig, activation, deletion, publish

Query = Callable[..., list[tuple[Any, ...]]]
Send = Callable[..., None]

SENSORS = (customer_activation_sensor, account_deletion_sensor, tenant_registry_sensor)


@pytest.fixture
def rig(instance: dg.DagsterInstance, settings: Settings) -> Rig:
    return Rig(instance)


@pytest.fixture
def send(database: Database, settings: Settings) -> Send:
    def send(topic: str, *bodies: dict[str, object], publisher: str = "") -> None:
        publish(database, settings, topic, *bodies, publisher=publisher)

    return send


def burst(daemon: Daemon, settings: Settings) -> None:
    asyncio.run(consume_until_stopped(daemon, settings, asyncio.Event(), burst=True))


def partitions(rig: Rig) -> list[str]:
    return list(rig.instance.get_dynamic_partitions("tenants"))


def statuses(query: Query) -> dict[int, str]:
    return dict(query("SELECT customer_id, status FROM clientmgr.tenants"))


def materialised(rig: Rig) -> set[str]:
    return rig.instance.get_materialized_partitions(dg.AssetKey("tenant_schema"))


def test_an_activation_becomes_a_registered_tenant_with_schema_partition_and_materialisation(
    rig: Rig, send: Send, query: Query
) -> None:
    send(ACTIVATE_CUSTOMER, activation(7, 1000))

    rig.settle(*SENSORS)

    assert statuses(query) == {7: "active"}
    assert query('SELECT count(*) FROM "tenant_7".devices') == [(0,)]
    assert partitions(rig) == ["7"]
    assert materialised(rig) == {"7"}
    assert [run.run_key for run in rig.runs] == [f"{ACTIVATE_CUSTOMER}:1"]


def test_events_right_behind_an_activation_are_written_when_the_sensors_run_is_done(
    rig: Rig, send: Send, query: Query, settings: Settings
) -> None:
    send(ACTIVATE_CUSTOMER, activation(7, 1000))
    event = {"eventType": "client.updated", "applicationCode": "A", "clientId": "c1", "occurredAt": 1000, "payload": {}}
    send(WRITER, {"eventId": "e", "customerId": 7, **event})
    burst(writer.DAEMON, settings)
    query("UPDATE clientmgr.outbox_message_t SET published_at = published_at - interval '1 hour'")
    burst(republisher.DAEMON, settings)
    assert query("SELECT reason FROM clientmgr.delayed_message_t") == [("waits: customer 7 is still being activated",)]

    rig.settle(*SENSORS)

    burst(republisher.DAEMON, settings)  # the activation has made it due
    assert query('SELECT client_id FROM "tenant_7".devices') == [("c1",)]
    assert query("SELECT attributes FROM clientmgr.outbox_message_t WHERE attributes ? 'errorClass'") == []


def test_many_activations_are_one_run(rig: Rig, send: Send, query: Query) -> None:
    send(ACTIVATE_CUSTOMER, *(activation(customer, 1000) for customer in (30, 4, 200)))

    rig.settle(*SENSORS)

    assert statuses(query) == {4: "active", 30: "active", 200: "active"}
    assert materialised(rig) == {"4", "30", "200"}
    assert [run.run_key for run in rig.runs] == [f"{ACTIVATE_CUSTOMER}:1-3"]


def test_a_second_activation_is_harmless_and_needs_no_run(rig: Rig, send: Send, query: Query) -> None:
    send(ACTIVATE_CUSTOMER, activation(7, 1000))
    rig.settle(*SENSORS)
    query("INSERT INTO \"tenant_7\".devices (application_code, client_id) VALUES ('A', 'one')")
    send(ACTIVATE_CUSTOMER, activation(7, 1000), activation(7, 2000))

    rig.settle(*SENSORS)

    assert query('SELECT client_id FROM "tenant_7".devices') == [("one",)]
    assert len(rig.runs) == 1


@pytest.mark.parametrize("publisher", ["pubsub:crm", "cli:anna", ""])
def test_a_deletion_removes_schema_and_partition_and_is_audited_under_who_published_it(
    rig: Rig, send: Send, query: Query, publisher: str
) -> None:
    send(ACTIVATE_CUSTOMER, activation(7, 1000), activation(8, 1000))
    rig.settle(*SENSORS)
    send(ACCOUNT_DELETION, deletion(7, 2000, requestedBy="Compliance Officer"), publisher=publisher)

    rig.tick(account_deletion_sensor)

    assert statuses(query) == {7: "deleted", 8: "active"}
    assert query("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tenant\\_%%'") == [("tenant_8",)]
    assert partitions(rig) == ["8"]
    trail = query(
        "SELECT actor, outcome, details FROM clientmgr.audit_log WHERE action = 'account.delete' ORDER BY seq"
    )
    actor, details = publisher or "unauthenticated", {"event_id": "d-2000", "claimed_by": "Compliance Officer"}
    assert trail == [(actor, outcome, details) for outcome in ("intended", "dropped", "completed")]
    assert query("SELECT actor FROM clientmgr.tenant_wishes WHERE customer_id = 7") == [(actor,)]
    assert rig.runs[-1].run_key == f"{ACCOUNT_DELETION}:1"


def test_a_second_deletion_is_harmless_and_an_activation_afterwards_starts_clean(
    rig: Rig, send: Send, query: Query
) -> None:
    send(ACTIVATE_CUSTOMER, activation(7, 1000))
    rig.settle(*SENSORS)
    query("INSERT INTO \"tenant_7\".devices (application_code, client_id) VALUES ('A', 'old')")
    send(ACCOUNT_DELETION, deletion(7, 2000), deletion(7, 2000))
    rig.settle(*SENSORS)
    send(ACTIVATE_CUSTOMER, activation(7, 3000))
    rig.settle(*SENSORS)
    send(ACCOUNT_DELETION, deletion(7, 2000))
    rig.settle(*SENSORS)

    assert statuses(query) == {7: "active"}
    assert query('SELECT count(*) FROM "tenant_7".devices') == [(0,)]
    assert partitions(rig) == ["7"]
    schemas = [run.run_key for run in rig.runs if run.partition_key]
    assert schemas == [f"{ACTIVATE_CUSTOMER}:1", f"{ACTIVATE_CUSTOMER}:2"], "the customer who came back has its own run"


def test_an_activation_that_a_deletion_overtakes_creates_nothing(rig: Rig, send: Send, query: Query) -> None:
    send(ACCOUNT_DELETION, deletion(7, 2000))
    send(ACTIVATE_CUSTOMER, activation(7, 1000))

    rig.settle(account_deletion_sensor, customer_activation_sensor, tenant_registry_sensor)

    assert statuses(query) == {}
    assert partitions(rig) == []
    assert query("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tenant\\_%%'") == [(0,)]


def test_a_run_for_a_customer_who_was_deleted_while_it_was_queued_materialises_nothing_and_does_not_fail(
    rig: Rig, manager: TenantSchemaManager
) -> None:
    manager.activate([7], actor="test")
    manager.delete(7, actor="test")
    rig.instance.add_dynamic_partitions("tenants", ["7"])
    job = rig.definitions.resolve_implicit_global_asset_job_def()
    selection = [dg.AssetKey("tenant_schema")]
    assert job.execute_in_process(partition_key="7", instance=rig.instance, asset_selection=selection).success
    assert materialised(rig) == set()


BAD: dict[str, dict[str, object]] = {
    "a customer id that is none": activation(0, 1000),
    "text for a number": activation("7", 1000),
    "no event id": {"customerId": 7, "occurredAt": 1000},
    "an event id with a NUL": activation(7, 1000, eventId="a\0b"),
    "a moment in the far future": activation(7, 9_000_000_000_000),
    "a customer id of 19 digits": activation(10**18, 1000),
}


def test_messages_that_nobody_can_act_on_are_dead_letters_and_hold_up_nobody(
    rig: Rig, send: Send, query: Query, database: Database
) -> None:
    send(ACTIVATE_CUSTOMER, *BAD.values(), activation(8, 1000))
    send(ACCOUNT_DELETION, *({**body, "requestedBy": "x"} for body in BAD.values()), deletion(9, 1000))
    send(ACCOUNT_DELETION, {**activation(8, 2000)}, deletion(8, 2000, requestedBy="a\0b"))

    rig.settle(*SENSORS)

    assert statuses(query) == {8: "active"}
    with database.connect(Role.READER) as connection:
        letters = finding.find(connection, finding.Filter(), limit=100)
    by_topic = {
        topic: [x.error for x in letters if x.topic == topic] for topic in (ACTIVATE_CUSTOMER, ACCOUNT_DELETION)
    }
    assert len(by_topic[ACTIVATE_CUSTOMER]) == len(BAD)
    assert len(by_topic[ACCOUNT_DELETION]) == len(BAD) + 2
    fields = {error.partition(":")[0] for error in by_topic[ACCOUNT_DELETION]}
    assert fields == {"customerId", "eventId", "occurredAt", "requestedBy"}
    assert {letter.subscription for letter in letters} == {ACTIVATE_CUSTOMER, ACCOUNT_DELETION}


def test_a_dead_letter_that_is_replayed_reaches_the_sensor_again(
    rig: Rig, send: Send, query: Query, database: Database, settings: Settings
) -> None:
    send(ACTIVATE_CUSTOMER, activation(0, 1000))
    rig.settle(*SENSORS)
    # What a new release that understands the message would do is done here to the message.
    query(
        "UPDATE clientmgr.dead_letter_queue SET payload = convert_to(replace(convert_from(payload, 'UTF8'), "
        "'\"customerId\": 0', '\"customerId\": 7'), 'UTF8')"
    )
    with database.connect(Role.WRITER, autocommit=True) as connection:
        audit = AuditLogger.from_settings(settings)
        (replay,) = dead_letter_actions.replay(connection, Selection(), audit, settings=settings, actor="test")
    assert (replay.replayed, replay.problem) == (1, "")

    rig.settle(*SENSORS)

    assert statuses(query) == {7: "active"}


@pytest.mark.parametrize("steps", range(5))
def test_killed_after_any_step_of_a_tick_the_sensors_lose_and_repeat_nothing_that_matters(
    rig: Rig, send: Send, query: Query, steps: int
) -> None:
    """0: the evaluation has returned, and nothing of what it asked for was stored."""
    send(ACTIVATE_CUSTOMER, activation(7, 1000), activation(8, 1000))
    rig.tick(customer_activation_sensor, steps=steps)
    rig.settle(*SENSORS)
    assert statuses(query) == {7: "active", 8: "active"}
    assert sorted(partitions(rig)) == ["7", "8"]
    assert materialised(rig) == {"7", "8"}

    send(ACCOUNT_DELETION, deletion(7, 2000), deletion(8, 2000))
    rig.tick(account_deletion_sensor, steps=steps)
    rig.settle(*SENSORS)

    assert statuses(query) == {7: "deleted", 8: "deleted"}
    assert partitions(rig) == []
    audited = query(
        "SELECT customer_id, outcome FROM clientmgr.audit_log WHERE customer_id > 0 ORDER BY customer_id, seq"
    )
    assert audited == [
        (customer, outcome) for customer in (7, 8) for outcome in ("created", "intended", "dropped", "completed")
    ], "each was created and deleted once"


def test_a_cursor_that_somebody_resets_does_no_harm(rig: Rig, send: Send, query: Query) -> None:
    send(ACTIVATE_CUSTOMER, activation(7, 1000))
    rig.settle(*SENSORS)
    send(ACCOUNT_DELETION, deletion(7, 2000))
    rig.settle(*SENSORS)
    send(ACTIVATE_CUSTOMER, activation(7, 3000))
    rig.settle(*SENSORS)
    query("INSERT INTO \"tenant_7\".devices (application_code, client_id) VALUES ('A', 'one')")

    rig.cursors.clear()
    rig.run_keys.clear()
    rig.settle(*SENSORS)

    assert statuses(query) == {7: "active"}
    assert query('SELECT client_id FROM "tenant_7".devices') == [("one",)]


def test_retention_waits_for_the_stored_cursor_and_not_for_what_was_only_read(
    rig: Rig, send: Send, query: Query
) -> None:
    next_offsets = "SELECT DISTINCT o.next_offset FROM clientmgr.consumer_offsets AS o WHERE o.group_id = %s"
    send(ACTIVATE_CUSTOMER, activation(7, 1000))
    rig.tick(customer_activation_sensor, steps=0)
    rig.tick(customer_activation_sensor)
    assert query(next_offsets, ACTIVATE_CUSTOMER) == [(1,)]

    rig.tick(customer_activation_sensor)

    assert query(next_offsets, ACTIVATE_CUSTOMER) == [(2,)]
