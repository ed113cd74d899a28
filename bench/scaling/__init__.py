"""What grows with what: tenants, their schemas, backends, Dagster's partitions, devices. It feeds docs/scaling.md.

No race and no peers: one database grows to 100, 1,000 and 10,000 tenants with 20 devices each, and at each size this is
measured: the four steps (activation, one column, the dashboard's pass and the search for orphans, the last two in Spark
jobs of 500 tenants), catalogue, a look by autovacuum, a whole dump with its locks, the start after a crash. Besides:
memory of one backend that works for all of them, Dagster's partitions, what a device takes and what its events cost,
connections of `clientmgr up` at rest. Where CITUS_DATABASE_URL names a cluster, the database grows there as well: what
is then on the coordinator and on each node, and what Citus itself does (`cluster.py`).

`--json FILE` keeps the figures. `python -m bench.scaling FILE` does the arithmetic with them, up to a million tenants
and 10 billion devices (`model.py`). SCALING_PARTS names some of the parts, for a machine that others wait for.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.batch.session import running_driver
from bench.harness.options import Options
from bench.harness.report import Listing
from bench.harness.servers import bench_postgres
from bench.scaling.backends import measure_backends
from bench.scaling.cluster import BenchCluster, ClusterDatabase
from bench.scaling.devices import measure_devices
from bench.scaling.installation import measure_installation
from bench.scaling.measured import Writer, listing
from bench.scaling.on_cluster import size_rows
from bench.scaling.partitions import measure_partitions
from bench.scaling.tenants import LOOKS_QUICK_S, LOOKS_S, GrowingDatabase, sizes_up_to
from bench.writer import writing
from tests.citus.cluster import CLUSTER_URL

TENANTS, TENANTS_ON_CLUSTER, TENANTS_QUICK = 10_000, 1_000, 100
DEVICES, DEVICES_QUICK = 200_000, 2_000
MB = 1_000_000


def run(options: Options) -> Iterator[Listing]:
    wanted = os.environ.get("SCALING_PARTS", ",".join(PARTS)).split(",")
    for name in wanted:
        yield from PARTS[name](options)


def tenants(options: Options) -> Iterator[Listing]:
    """The growing database, and the memory of backends at its largest size."""
    sizes = list(sizes_up_to(_tenants(options)))
    with (
        bench_postgres(options) as server,
        running_driver(options) as driver,
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
    ):
        looks_s = LOOKS_QUICK_S if options.quick else LOOKS_S
        database = GrowingDatabase(server, driver, Path(folder), looks_s=looks_s)
        for size in sizes:
            found = database.grown_to(size)
            rows = [
                (f"activation of {found.activated:,}", f"{found.activate_s:.1f} s"),
                ("one column", f"{found.migrate_s:.1f} s"),
                ("the dashboard's pass", f"{found.collect_s:.1f} s"),
                ("search for orphans", f"{found.orphans_s:.1f} s"),
                ("the dashboard's first page", f"{found.page_s * 1000:.0f} ms"),
                ("rows of pg_class", f"{found.relations:,}"),
                ("rows of pg_attribute", f"{found.attributes:,}"),
                ("catalogue", f"{found.catalogue_bytes / MB:,.0f} MB"),
                ("database", f"{found.database_bytes / MB:,.0f} MB"),
                ("files", f"{found.files:,}"),
                ("a look by autovacuum", f"{found.autovacuum_look_s * 1000:.0f} ms of CPU"),
                ("pg_dump", f"{found.dump_s:.1f} s"),
                ("locks of pg_dump", f"{found.dump_locks:,} of {found.lock_table:,}"),
                ("start after a crash", f"{found.crash_start_s:.1f} s"),
                ("shared memory", f"{found.shared_memory_bytes / MB:,.0f} MB"),
            ]
            yield listing(f"{size:,} tenants in one database", ("what", "measured"), rows, found)
        url = server.superuser_url(database.name)
        backends = list(measure_backends(url, database.settings, database.customers, sizes))
        by_backend = [
            (
                one.work,
                f"{one.schemas:,}",
                f"{one.recycled_after:,}" if one.recycled_after else "never",
                *(
                    f"{size / MB:.1f} MB"
                    for size in (one.private_bytes, one.pss_bytes, one.caches_bytes, one.plans_bytes)
                ),
                *(f"{seconds / one.schemas * 1000:.2f} ms" for seconds in (one.first_s, one.again_s)),
            )
            for one in backends
        ]
        headings = ("work", "schemas", "renewed after", "own memory", "PSS", "caches", "plans", "first time", "again")
        yield listing("One backend that works for many tenants", headings, by_backend, *backends)


def cluster(options: Options) -> Iterator[Listing]:
    """The growing database on a Citus cluster, where CITUS_DATABASE_URL names one. Activation is far slower there."""
    if not CLUSTER_URL:
        return
    tenants = options.tenants or (TENANTS_QUICK if options.quick else TENANTS_ON_CLUSTER)
    sizes = [tenants // 10, tenants * 3 // 10, tenants]
    with (
        running_driver(options) as driver,
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
    ):
        server = BenchCluster(Path(folder))
        database = ClusterDatabase(server, driver, Path(folder))
        for size in sizes:
            found = database.on_cluster(size)
            title = f"{size:,} tenants on {found.nodes} nodes"
            yield listing(title, ("what", "measured"), [(row[0], row[1]) for row in size_rows([found])], found)
        url = server.superuser_url(database.name)
        nodes = server.node_urls(database.name)
        backends = list(measure_backends(url, database.settings, database.customers, sizes, nodes))
        by_backend = [
            (one.work, f"{one.schemas:,}", *(f"{size / MB:.1f} MB" for size in (one.private_bytes, one.node_bytes)))
            for one in backends
        ]
        yield listing("Its backends", ("work", "schemas", "at the coordinator", "on a node"), by_backend, *backends)
        server.drop_database(database.name)


def partitions(options: Options) -> Iterator[Listing]:
    """Dagster's."""
    with bench_postgres(options) as server:
        found = list(measure_partitions(server, list(sizes_up_to(_tenants(options)))))
    rows = [
        (
            f"{one.partitions:,}",
            f"{one.added:,} in {one.add_s:.2f} s",
            f"{one.list_s * 1000:.0f} ms",
            f"{one.requests} in {one.request_s * 1000:.0f} ms",
            f"{one.run_tenants} in {one.run_s:.2f} s",
            f"{one.log_bytes / MB:.1f} MB",
        )
        for one in found
    ]
    headings = ("partitions", "added", "listed in", "run requests", "a run over", "event log so far")
    yield listing("Dagster's dynamic partitions", headings, rows, *found)


def devices(options: Options) -> Iterator[Listing]:
    """One tenant with many."""
    with bench_postgres(options) as server:
        found = measure_devices(server, DEVICES_QUICK if options.quick else DEVICES)
    rows = [(name, f"{size / found.devices:.0f}") for name, size in found.bytes_by_relation.items()]
    rows.append(("all", f"{found.bytes_a_device:.0f}"))
    yield listing(f"Bytes a device, of {found.devices:,} with three events each", ("relation", "bytes"), rows, found)


def writer(options: Options) -> Iterator[Listing]:
    """What an event costs: the daemon's turn in `bench writer`."""
    events, many = (2_000, 5) if options.quick else (50_000, 50)
    with (
        bench_postgres(options) as server,
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
    ):
        sample = next(writing(server, Path(folder), [many], events, 1)).lines[0].samples[0]
    found = Writer(many, events, sample.wall_s, sample.client_cpu_s, sample.server_cpu_s or 0.0)
    rows = [
        ("events a second", f"{found.events / found.write_s:,.0f}"),
        ("events a second of one core, the server's part included", f"{found.events_a_core_second:,.0f}"),
        ("of the CPU time, the server's", f"{found.server_cpu_s / (found.server_cpu_s + found.client_cpu_s):.0%}"),
    ]
    yield listing(f"One writer, {many} tenants", ("what", "measured"), rows, found)


def installation(options: Options) -> Iterator[Listing]:
    """`clientmgr up`."""
    found = measure_installation(options)
    rows = [(who, str(count)) for who, count in sorted(found.connections.items(), key=lambda one: -one[1])]
    rows.append(("all", str(sum(found.connections.values()))))
    yield listing("Connections of clientmgr up at rest", ("login (application)", "connections"), rows, found)


PARTS: Final[dict[str, Callable[[Options], Iterator[Listing]]]] = {
    part.__name__: part for part in (devices, writer, partitions, tenants, cluster, installation)
}


def _tenants(options: Options) -> int:
    return options.tenants or (TENANTS_QUICK if options.quick else TENANTS)
