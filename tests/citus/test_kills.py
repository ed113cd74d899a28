"""Writers are killed and nodes crash while events storm in: nothing is lost or mixed up. Alone on its cluster."""

import functools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts import topics
from tests.citus.cluster import CitusCluster
from tests.streaming.crew import Crew, Scene, dead_letters
from tests.streaming.rig import Rig, read_topic
from tests.streaming.storm import brew, expected_rows, stored_rows
from tests.waiting import eventually

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not os.environ.get("CITUS_CRASHES"), reason="CITUS_CRASHES is not set: this crashes the cluster's nodes"
    ),
]
TENANTS = [CustomerId(customer) for customer in range(1, 13)]
EVENTS, KILLS = 12_000, 8
KILL_A_BACKEND = "COPY (SELECT) TO PROGRAM 'kill -9 $PPID'"
"""Its server then ends all others at once and recovers from its log, as after a SIGKILL of all of them."""


def crash(cluster: CitusCluster, node: tuple[str, int]) -> None:
    with pytest.raises(psycopg.OperationalError), cluster.connect(node) as connection:
        connection.execute(KILL_A_BACKEND)


def answers(cluster: CitusCluster, node: tuple[str, int]) -> bool:
    try:
        with cluster.connect(node) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def started_at(cluster: CitusCluster, node: tuple[str, int]) -> object:
    with cluster.connect(node) as connection:
        return (
            connection.execute("SELECT pid, backend_start FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
        ).fetchone()


@pytest.fixture
def scene(rig: Rig, tmp_path: Path) -> Iterator[Scene]:
    rig.activate(*TENANTS)
    settings = rig.settings.model_copy(update={"broker_wait_period_ms": 100, "writer_batch_size": 200})
    crew = Crew(settings, tmp_path)
    crew.start()
    scene = Scene(settings, rig.database, crew)
    yield scene
    scene.look_away()
    crew.dismiss()


async def test_killed_writers_and_crashed_nodes_lose_nothing(scene: Scene, postgres_server: CitusCluster) -> None:
    cluster, nodes = postgres_server, postgres_server.nodes[1:]
    storm = brew(TENANTS, EVENTS, seed=EVENTS)
    portion = EVENTS // KILLS + 1
    before = {node: started_at(cluster, node) for node in nodes}
    for step in range(KILLS):
        await scene.publish(storm.arriving[step * portion : (step + 1) * portion])
        await scene.kill_at_work(step % len(Crew.ROLES), handled=portion // 3)
        if step % 2:
            crash(cluster, nodes[step // 2 % len(nodes)])
    for node in nodes:
        eventually(functools.partial(answers, cluster, node), "the node is back")
        assert started_at(cluster, node) != before[node]
    await scene.drained()

    assert sum(scene.crew.kills.values()) == KILLS
    assert Counter(one.data for one in read_topic(scene.database, topics.WRITER_ERRORS)) == Counter(storm.malformed)
    assert dead_letters(scene.database) == 0
    for customer in TENANTS:
        assert stored_rows(scene.database, customer) == expected_rows(storm.histories[customer]), customer
