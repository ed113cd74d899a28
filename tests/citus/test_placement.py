"""Tenants move between nodes of a Citus cluster while they are written to: nothing is lost; stopped means undone."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.portions import portions
from clientmgr.base.settings import Settings
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.lag import subscription_lag
from clientmgr.contracts import topics
from clientmgr.tenants.moves import MoveFailedError, move_tenant
from clientmgr.tenants.placement import Node, find_copies, find_nodes, find_places
from clientmgr.tenants.schema_manager import TenantSchemaManager
from streaming import republisher, writer
from streaming.runtime.daemon import consume_on
from tests.citus.cluster import ON_CLUSTER, WHY_SKIPPED
from tests.cli.calling import Cli
from tests.dashboard.house import Visit, serving
from tests.streaming.rig import Rig
from tests.streaming.storm import brew, expected_rows, stored_rows
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not ON_CLUSTER, reason=WHY_SKIPPED)

SEVEN, EIGHT = CustomerId(7), CustomerId(8)
MESSAGES = 30_000
MOVING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE state = 'active' AND query LIKE '%citus_schema_move%' AND pid <> pg_backend_pid()"
)
SettingsFor = Callable[[Database], Settings]


@pytest.fixture(autouse=True)
def _operations_of_its_own(request: pytest.FixtureRequest) -> None:
    """Citus names roles and slots by a number of the database's. They are the server's, which has a database a test."""
    if ON_CLUSTER:
        cluster, database = (request.getfixturevalue(name) for name in ("postgres_server", "database"))
        with cluster.connect(database=conninfo_to_dict(database.url)["dbname"]) as connection:
            number = random.SystemRandom().randrange(10**9)
            connection.execute("SELECT setval('pg_catalog.pg_dist_operationid_seq', %s)", (number,))


def takers(database: Database) -> list[Node]:
    with database.connect(Role.READER) as connection:
        return [node for node in find_nodes(connection) if node.takes_tenants]


def where(database: Database, *customers: CustomerId) -> dict[CustomerId, str]:
    with database.connect(Role.READER) as connection:
        nodes = {node.group: node.address for node in find_nodes(connection)}
        return {place.customer_id: nodes[place.group] for place in find_places(connection, customers or None)}


def elsewhere(database: Database, customer: CustomerId) -> str:
    here = where(database, customer)[customer]
    return next(node.address for node in takers(database) if node.address != here)


def audited(database: Database, customer: int, action: str = "tenant.move") -> list[str]:
    with database.connect(Role.READER) as connection:
        rows = connection.execute(
            "SELECT outcome FROM clientmgr.audit_log WHERE customer_id = %s AND action = %s ORDER BY seq",
            (customer, action),
        )
        return [row[0] for row in rows]


async def test_a_tenant_moves_there_and_back_under_the_writer_and_no_event_is_lost(
    anyio_backend: str, database: Database, settings_for: SettingsFor
) -> None:
    settings = settings_for(database).model_copy(update={"broker_wait_period_ms": 50})
    TenantSchemaManager(database, settings).activate([SEVEN, EIGHT], actor="test")
    home, away = where(database, SEVEN)[SEVEN], elsewhere(database, SEVEN)
    storm = brew([SEVEN, EIGHT], MESSAGES, seed=20)
    published: list[bytes] = []
    async with open_broker(settings, database) as broker:
        rig = Rig(settings, database, broker)
        for daemon in (writer.DAEMON, republisher.DAEMON):
            await rig.burst(daemon)  # so that their subscriptions are there
        stop = asyncio.Event()
        daemons = [
            asyncio.create_task(consume_on(broker, daemon, settings, stop))
            for daemon in (writer.DAEMON, republisher.DAEMON)
        ]

        async def unread() -> int:
            async with await database.connect_async(Role.READER) as connection:
                return sum(one.messages for one in await subscription_lag(connection, at_most=MESSAGES))

        async def publish_until(moved: asyncio.Task[None]) -> None:
            for chunk in portions(storm.arriving, 200):
                while await unread() and not moved.done():
                    continue
                if moved.done():
                    return
                await broker.publish(topics.WRITER, [Message(body, str(customer)) for customer, body in chunk])
                published.extend(body for _, body in chunk)

        async def move() -> None:
            for target in (away, home):
                await asyncio.to_thread(move_tenant, database, settings, SEVEN, target, actor="test")

        moved = asyncio.create_task(move())
        await publish_until(moved)
        await moved
        assert len(published) > 1000, "the tenant was written to meanwhile"
        stop.set()
        await asyncio.gather(*daemons)
        for daemon in (writer.DAEMON, republisher.DAEMON):
            await rig.burst(daemon)
        assert await unread() == 0
        assert not rig.retries, "no event had to be tried again"
        assert sorted(one.data for one in rig.errors) == sorted(set(storm.malformed) & set(published))
    events = [json.loads(body) for body in set(published) - set(storm.malformed)]
    for customer in (SEVEN, EIGHT):
        history = [event for event in events if event["customerId"] == customer]
        assert stored_rows(database, customer) == expected_rows(history)
    assert where(database, SEVEN) == {SEVEN: home}
    assert audited(database, SEVEN) == ["intended", "moved"] * 2


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_move_that_is_stopped_or_killed_leaves_the_tenant_where_it_was_and_no_copy(
    end: signal.Signals, database: Database, settings_for: SettingsFor, tmp_path: Path
) -> None:
    settings = settings_for(database)
    TenantSchemaManager(database, settings).activate([SEVEN], actor="test")
    home, target = where(database, SEVEN)[SEVEN], elsewhere(database, SEVEN)
    # A transaction that is open anywhere on the node keeps a move from beginning to copy.
    with database.connect(Role.WRITER) as busy:
        busy.execute("INSERT INTO tenant_7.devices (application_code, client_id) VALUES ('A', 'open')")
        process = subprocess.Popen(
            [sys.executable, "-m", "clientmgr", "tenants", "place", "7", "--to", target],
            env={**os.environ, **settings.environment()},
            stderr=subprocess.PIPE,
            text=True,
        )
        with database.connect(Role.DDL, autocommit=True) as looking:
            eventually(lambda: find_copies(looking), "the move has begun")
            process.send_signal(end)
            _, told = process.communicate(timeout=60)
            eventually(lambda: looking.execute(MOVING).fetchone() == (0,), "the move has ended")
            # What a killed one leaves is removed by Citus, or by whoever begins anew.
            assert end is signal.SIGKILL or not find_copies(looking)
        busy.commit()
    assert where(database, SEVEN) == {SEVEN: home}
    if end is signal.SIGKILL:
        assert audited(database, SEVEN) == ["intended"]
    else:
        assert process.returncode == 130
        assert "stays where it was" in told
        assert audited(database, SEVEN) == ["intended", "stopped"]
    assert move_tenant(database, settings, SEVEN, target, actor="test").changed, "it can be begun anew"
    with database.connect(Role.READER) as connection:
        assert connection.execute("SELECT client_id FROM tenant_7.devices").fetchall() == [("open",)]


def test_a_move_gives_up_where_a_writer_keeps_its_transaction_open(
    database: Database, settings_for: SettingsFor
) -> None:
    settings = settings_for(database).model_copy(update={"tenant_lock_timeout_ms": 300})
    TenantSchemaManager(database, settings).activate([SEVEN], actor="test")
    home, target = where(database, SEVEN)[SEVEN], elsewhere(database, SEVEN)
    with database.connect(Role.WRITER) as busy:

        def write_while_it_copies(progress: Any) -> None:
            if progress.phase in {"Catching Up", "Creating Constraints", "Final Catchup"}:
                busy.execute(
                    "INSERT INTO tenant_7.devices (application_code, client_id) VALUES ('A', 'open')"
                    " ON CONFLICT DO NOTHING"
                )

        with pytest.raises(MoveFailedError, match="lock timeout"):
            move_tenant(database, settings, SEVEN, target, actor="test", on_progress=write_while_it_copies)
        busy.commit()
    assert where(database, SEVEN) == {SEVEN: home}
    assert audited(database, SEVEN) == ["intended", "failed"]


def test_new_tenants_go_to_the_emptiest_node_and_a_rebalancing_evens_out(
    database: Database, settings_for: SettingsFor, tmp_path: Path
) -> None:
    settings = settings_for(database)
    manager = TenantSchemaManager(database, settings)
    first, second = (node.address for node in takers(database)[:2])
    manager.activate([1, 2, 3, 4], actor="test")
    assert sorted(where(database).values()) == sorted([first, second] * 2)
    with database.connect(Role.OWNER, autocommit=True) as connection:
        # As the nightly count would have it.
        heavy = next(customer for customer, node in where(database).items() if node == first)
        connection.execute(
            "INSERT INTO clientmgr.dashboard_tenant_metrics (customer_id, collected_at, run_id, status, table_bytes,"
            " sync_status) VALUES (%s, now(), 'r', 'ok', 1000000000, 'not checked')",
            (heavy,),
        )
    manager.activate([5, 6, 7, 8], actor="test")
    new = where(database, *map(CustomerId, (5, 6, 7, 8)))
    assert set(new.values()) == {second}
    assert {outcome for customer in new for outcome in audited(database, customer)} == {"moved"}

    cli = Cli.on(database, tmp_path, **settings.environment())
    planned = cli.ok("tenants", "place", "--rebalance", "--dry-run", "--by", "tenants", "--json").json
    assert {(row["from"], row["to"]) for row in planned} == {(second, first)}
    ended = cli.ok("tenants", "place", "--rebalance", "--yes", "--by", "tenants", "--json").json
    assert (ended["state"], ended["moved"]) == ("finished", len(planned))
    assert sorted(where(database).values()) == sorted([first, second] * 4)
    assert audited(database, 0, "placement.rebalance") == ["started", "finished"]
    assert cli.ok("tenants", "place", "--rebalance", "--by", "tenants").out.strip() == "nothing is to be moved"
    assert cli.ok("tenants", "place", "--stop").out.strip() == "no rebalancing is under way"


def test_place_and_the_dashboard_show_nodes_tenants_and_sizes(
    database: Database, settings_for: SettingsFor, tmp_path: Path
) -> None:
    settings = settings_for(database).model_copy(update={"dashboard_port": 0})
    TenantSchemaManager(database, settings).activate([SEVEN, EIGHT], actor="test")
    cli = Cli.on(database, tmp_path, **settings.environment())
    cli.ok("tenants", "rename", "7", "Acme")
    shown = cli.ok("tenants", "place", "--json").json
    lies = {str(row["customer_id"]): row["node"] for row in shown["tenants"]}
    assert lies == {str(customer): node for customer, node in where(database).items()}
    assert all(row["bytes"] > 0 for row in shown["tenants"])
    by_state = {row["state"]: row for row in shown["nodes"]}
    assert by_state["coordinator"]["tenants"] == 0
    assert sum(row["tenants"] for row in shown["nodes"]) == 2
    table = cli.ok("tenants", "place", "--largest", "1").out
    assert "and 1 smaller tenant: --largest 0 shows all" in table

    already = cli.ok("tenants", "place", "7", "--to", lies["7"])
    assert "already" in already.out
    coordinator = by_state["coordinator"]["node"]
    refused = cli("tenants", "place", "7", "--to", coordinator)
    assert (refused.code, lies["7"] in refused.err) == (2, True), "the nodes that there are are named"
    unknown = cli("tenants", "place", "99", "--to", lies["7"])
    assert (unknown.code, "never activated" in unknown.err) == (1, True)

    with serving(settings) as address, Visit(base_url=address, timeout=30) as visit:
        page = visit.see("/placement")
        assert all(text in page for text in (*lies.values(), "Acme", "tenants place --rebalance"))
        only = visit.see(f"/placement?node={lies['7']}&customerId=8")
        assert ('href="/tenants/8"' in only) == (lies["7"] == lies["8"])
        assert visit.get("/api/v1/placement").json()["isCluster"] is True


def test_nobody_but_the_tenants_owner_moves_them(database: Database, settings_for: SettingsFor) -> None:
    TenantSchemaManager(database, settings_for(database)).activate([SEVEN], actor="test")
    target = next(node for node in takers(database) if node.address == elsewhere(database, SEVEN))
    for role in (Role.WRITER, Role.READER):
        with (
            database.connect(role, autocommit=True) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege, match="owner"),
        ):
            connection.execute("SELECT citus_schema_move('tenant_7', %s, %s)", (target.host, target.port))
