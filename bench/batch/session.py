"""The Spark session that all variants share, and what its driver costs: processor time and memory, JVM included."""

import contextlib
import dataclasses
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from bench.harness.measure import Sample, measure
from bench.harness.options import Options
from bench.harness.servers import BenchPostgres
from clientmgr.base.settings import load_settings
from clientmgr_dagster.spark.session import start_session

OLD_GENERATION = "G1 Old Gen"


class Driver:
    """A session, and the JVM behind it."""

    def __init__(self, spark: SparkSession, jdbc_jar: Path | None) -> None:
        self.spark = spark
        self.jdbc_jar = jdbc_jar
        self._jvm = spark.sparkContext._jvm
        self._pid = int(self._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]

    def measure(self, work: Callable[[], object], server: BenchPostgres) -> Sample:
        """As the harness does, with the JVM and Spark's Python workers counted as the client's.

        A worker that ends meanwhile takes its time along: Spark's daemon does not wait for its children.
        """
        before = _cpu_seconds(self._pid)
        sample = measure(work, server)
        used = sum(seconds - before.get(pid, 0.0) for pid, seconds in _cpu_seconds(self._pid).items())
        return dataclasses.replace(sample, client_cpu_s=sample.client_cpu_s + used)

    def forget_memory_peak(self) -> None:
        """Throw away what nobody holds, and begin to watch anew."""
        self._jvm.System.gc()  # type: ignore[union-attr]
        for pool in self._pools():
            pool.resetPeakUsage()

    def jvm_peak_mb(self) -> float:
        """The most that survived collections since then: young garbage does not count. 0: another collector."""
        peaks = [int(pool.getPeakUsage().getUsed()) for pool in self._pools() if pool.getName() == OLD_GENERATION]
        return sum(peaks) / 2**20

    def python_mb(self) -> float:
        """The most that this process ever held."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def _pools(self) -> list:  # type: ignore[type-arg]  # Java's
        return list(self._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans())  # type: ignore[union-attr]


@contextlib.contextmanager
def running_driver(options: Options) -> Iterator[Driver]:
    """With PostgreSQL's JDBC driver where POSTGRES_JDBC_JAR names one."""
    jar = Path(os.environ.get("POSTGRES_JDBC_JAR", ""))
    conf = {
        "spark.driver.memory": "3g",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }
    if jar.is_file():
        conf |= {"spark.jars": str(jar), "spark.driver.extraClassPath": str(jar)}
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
        spark = start_session(load_settings(data_dir=Path(folder), spark_conf=conf))
        try:
            yield Driver(spark, jar if jar.is_file() else None)
        finally:
            spark.stop()


def _cpu_seconds(root: int) -> dict[int, float]:
    """User and system time of a process and its descendants, and of those whose end they have waited for."""
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            stats[int(folder.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    found: dict[int, float] = {}
    wanted = [root]
    while wanted:
        pid = wanted.pop()
        found[pid] = stats.get(pid, (0, 0))[1] / os.sysconf("SC_CLK_TCK")
        wanted += [child for child, (parent, _) in stats.items() if parent == pid]
    return found
