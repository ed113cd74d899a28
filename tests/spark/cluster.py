"""A standalone Spark cluster on this machine, from the pyspark package: a master, two workers, a Connect server."""

import contextlib
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark

from clientmgr.base.java import spark_environment
from clientmgr.base.settings import Settings
from clientmgr.local.children.guarded import GuardedProcess
from clientmgr.local.embedded.server import LOOPBACK, free_port
from clientmgr.local.standins.dynamodb import CREDENTIALS
from tests.waiting import eventually

SPARK_HOME = Path(pyspark.__file__).parent
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class Cluster:
    """Children of ours that end when we do."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            **spark_environment(settings),
            # Tasks find AWS's where they run.
            **CREDENTIALS,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_DAEMON_MEMORY": "768m",
            "PYSPARK_PYTHON": sys.executable,
        }
        self._port, self._ui_port = free_port(), free_port()
        self._processes: list[GuardedProcess] = []

    @property
    def master(self) -> str:
        return f"spark://{LOOPBACK}:{self._port}"

    def start(self) -> None:
        where = ["--host", LOOPBACK, "--port", str(self._port), "--webui-port", str(self._ui_port)]
        self._run("master", "spark-class", "org.apache.spark.deploy.master.Master", *where)
        for number in (1, 2):
            size = ["--host", LOOPBACK, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            self._run(f"worker-{number}", "spark-class", "org.apache.spark.deploy.worker.Worker", *size, self.master)
        eventually(self._has_two_workers, "two workers", within_s=60)

    def start_connect_server(self) -> str:
        """Its URL. It is a driver of the cluster, and our process a client of it."""
        port = free_port()
        options = {
            "spark.connect.grpc.binding.port": str(port),
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
        }
        conf = [part for name, value in options.items() for part in ("--conf", f"{name}={value}")]
        arguments = ["--master", self.master, "--class", CONNECT_SERVER, *conf, "spark-internal"]
        self._run("connect", "spark-submit", *arguments)
        log = self._folder / "connect.log"
        eventually(lambda: "Spark Connect server started at" in log.read_text(), "a Connect server", within_s=90)
        return f"sc://{LOOPBACK}:{port}"

    def stop_connect_server(self) -> None:
        """An application holds its executors for as long as it runs: the next one would wait for them for ever."""
        self._processes.pop().stop()

    def logs(self) -> list[Path]:
        """Of the master, the workers and all executors."""
        return [file for file in self._folder.rglob("*") if file.is_file() and file.suffix != ".jar"]

    def stop(self) -> None:
        while self._processes:
            self._processes.pop().stop()

    def _run(self, name: str, program: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            command: list[str | Path] = [SPARK_HOME / "bin" / program, *arguments]
            self._processes.append(
                GuardedProcess(name, command, env=self._environment, cwd=self._folder, output=log, grace_seconds=5)
            )

    def _has_two_workers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{LOOPBACK}:{self._ui_port}/json/") as page:
            return bool(page.read().count(b'"state" : "ALIVE"') == 2)
        return False


@contextlib.contextmanager
def running_cluster(folder: Path, settings: Settings) -> Iterator[Cluster]:
    cluster = Cluster(folder, settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
