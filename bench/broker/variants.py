"""Who is compared: our log, the physical limit, and the peers that are installed; each in a database of its own."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass

import psycopg

from bench.harness.options import REPOSITORY, peers_node, peers_python
from bench.harness.servers import BenchPostgres
from bench.peers.broker.workload import Report, Task

PEERS = REPOSITORY / "bench" / "peers" / "broker"


@dataclass(frozen=True)
class Variant:
    """A worker program, and the query that counts what waits in its queue."""

    name: str
    command: tuple[str, ...]
    waiting: str
    bulk: bool = True
    """Whether its handler sees several messages at once."""
    latency: bool = True
    one_in: int = 1
    """It does one message of so many, and its time is multiplied: the whole would take longer than all the others."""

    @property
    def database(self) -> str:
        return "".join(letter if letter.isalnum() else "_" for letter in self.name)

    @property
    def about_share(self) -> str:
        return f"{self.name} did 1 in {self.one_in}; its time is multiplied" if self.one_in > 1 else ""

    def share_of(self, messages: int) -> int:
        return max(1, messages // self.one_in)

    def prepare(self, server: BenchPostgres, *, workers: int) -> None:
        """A fresh database with an empty queue."""
        server.create_database(self.database)
        self.run(server, kind="prepare", workers=workers)

    def run(self, server: BenchPostgres, **task: object) -> Report:
        argument = json.dumps(asdict(Task(url=server.url(self.database), **task)))  # type: ignore[arg-type]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        with tempfile.TemporaryFile("w+") as answer:  # not a pipe: whoever exits early would leave half an answer in it
            result = subprocess.run(
                [*self.command, argument],
                stdout=answer,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
                cwd=REPOSITORY,
                check=False,
            )
            answer.seek(0)
            lines = answer.read().splitlines()
        if result.returncode or not lines:
            raise RuntimeError(f"{self.name}: {task}: ended with {result.returncode}: {result.stderr[-2000:]}")
        report = json.loads(lines[-1])
        return Report(report["wall_s"], report["cpu_s"], tuple(report["latencies"]))

    def count_waiting(self, server: BenchPostgres) -> int:
        return self._number(server, self.waiting)

    def handled(self, server: BenchPostgres) -> tuple[int, int]:
        """How many rows the handler left, and of how many different messages."""
        count = self._number(server, "SELECT count(*) FROM handled")
        return count, self._number(server, "SELECT count(DISTINCT n) FROM handled")

    def _number(self, server: BenchPostgres, query: str) -> int:
        with psycopg.connect(server.url(self.database)) as connection:
            return int(connection.execute(query.encode()).fetchall()[0][0])


OURS = Variant(
    "ours",
    (sys.executable, "-m", "bench.broker.ours"),
    "SELECT count(*) FROM clientmgr.outbox_message_t AS m JOIN clientmgr.consumer_offsets AS o"
    " USING (topic_id, partition_id) WHERE m.c_offset >= o.next_offset",
)
LIMIT = Variant(
    "limit: COPY in, cursor out",
    (sys.executable, "-m", "bench.broker.limit"),
    "SELECT count(*) FROM plain",
    latency=False,
)


def peers() -> list[Variant]:
    """Those that are installed (`make bench` does that)."""
    found = []
    if (python := peers_python()) is not None:
        found += [
            Variant("pgmq", (str(python), str(PEERS / "pgmq_peer.py")), "SELECT count(*) FROM pgmq.q_bench"),
            Variant(
                "Procrastinate",
                (str(python), str(PEERS / "procrastinate_peer.py")),
                "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'",
                bulk=False,
                one_in=20,
            ),
        ]
    if (node := peers_node()) is not None:
        program = (str(node), str(PEERS / "node_peer.mjs"))
        found += [
            Variant(
                "pg-boss",
                (*program, "pg-boss"),
                "SELECT count(*) FROM pgboss.job WHERE name = 'bench' AND state = 'created'",
            ),
            Variant(
                "graphile-worker",
                (*program, "graphile-worker"),
                "SELECT count(*) FROM graphile_worker.jobs",
                bulk=False,
            ),
        ]
    return found
