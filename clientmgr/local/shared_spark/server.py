"""The Spark Connect server as a child process: its command, its settings, its environment, and whether it answers."""

import asyncio
import contextlib
import os
import stat
from pathlib import Path
from typing import Final

from clientmgr.base.errors import EmbeddedServerError
from clientmgr.base.java import spark_environment
from clientmgr.base.private_files import ensure_private_folder, write_private
from clientmgr.base.settings import Settings
from clientmgr.contracts.handing_out import FOREIGN_CREDENTIALS, NO_CREDENTIALS
from clientmgr.local.children.guarded import GuardedProcess
from clientmgr.local.embedded.server import LOOPBACK, failure_reason, free_port, package_folder, server_environment
from clientmgr_dagster.spark.config import local_config, session_config
from clientmgr_dagster.spark.workers.nursery import running_nursery

CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
STOP_WITHIN_S: Final = 5.0
READY_WITHIN_S: Final = 120.0
ANSWER_WITHIN_S: Final = 10.0
LOOK_EVERY_S: Final = 0.1

_HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
_OF_GOOGLE_AND_AWS: Final = tuple(
    beginning for beginnings, readers in FOREIGN_CREDENTIALS.items() if readers for beginning in beginnings
)


class SparkServer:
    """One life of the server: a JVM, and the process that its Python workers are forked from."""

    def __init__(self, settings: Settings) -> None:
        self.port = free_port()
        self._folder = settings.data_dir.resolve() / "spark"
        self._resources = contextlib.ExitStack()
        ensure_private_folder(self._folder)
        environment = {**_environment(), **spark_environment(settings)}
        try:
            # It imports while the JVM starts.
            workers = self._resources.enter_context(running_nursery(environment))
            token = settings.spark_connect_token.get_secret_value()
            environment |= workers | {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_CONNECT_AUTHENTICATE_TOKEN": token}
            self._process = self._launch(settings, environment)
        except BaseException:
            self._resources.close()
            raise

    @property
    def log_file(self) -> Path:
        return self._folder / "server.log"

    def _launch(self, settings: Settings, environment: dict[str, str]) -> GuardedProcess:
        # What SPARK_CONF holds belongs in a file, not in a command line that every user of the machine can read.
        properties = self._folder / "server.properties"
        lines = [f"{name} {value}".replace("\\", "\\\\") for name, value in _config(settings, self.port).items()]
        write_private(properties, "\n".join([*lines, ""]))
        if self.log_file.exists():
            self.log_file.replace(self._folder / "server.previous.log")
        command: list[str | Path] = [
            package_folder("pyspark", "SPARK_SHARED") / "bin" / "spark-submit",
            *("--properties-file", properties, "--class", CLASS, "spark-internal"),
        ]
        with self.log_file.open("ab") as log:
            self.log_file.chmod(stat.S_IRUSR | stat.S_IWUSR)
            return GuardedProcess(
                "Spark", command, env=environment, cwd=self._folder, output=log, grace_seconds=STOP_WITHIN_S
            )

    def is_running(self) -> bool:
        return self._process.exit_code() is None

    async def wait_until_ready(self) -> None:
        """Until it answers. Raises `EmbeddedServerError` where it ends or takes too long."""
        async with asyncio.timeout(READY_WITHIN_S):
            while not await self.answers():
                if not self.is_running():
                    reason = failure_reason(self.log_file.read_text(errors="replace"), self._folder)
                    raise EmbeddedServerError(f"Spark ended while starting: {reason}")
                await asyncio.sleep(LOOK_EVERY_S)

    async def answers(self) -> bool:
        """Whether it speaks HTTP/2. A frozen one takes connections too, but says nothing."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN_S):
                reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
                try:
                    writer.write(_HTTP2_PREFACE)
                    return bool(await reader.read(1))
                finally:
                    writer.close()
        return False

    def stop(self) -> None:
        """Also by force. Its Python workers end with it."""
        self._process.stop()
        self._resources.close()


def _environment() -> dict[str, str]:
    """No login and no key of ours: data sources bring theirs. AWS's and Google's clients look in the environment."""
    foreign = [name for name in os.environ if name.startswith(_OF_GOOGLE_AND_AWS) or name in NO_CREDENTIALS]
    # PYTHONPATH: where our package is not installed.
    more = [*foreign, *(name for name in ("HOME", "PYTHONPATH") if name in os.environ)]
    return server_environment() | {name: os.environ[name] for name in more}


def _config(settings: Settings, port: int) -> dict[str, str]:
    return {
        **local_config(settings),
        **session_config(settings),
        "spark.driver.memory": settings.spark_shared_memory,
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        # Each run links to its session's page. Loopback, by SPARK_LOCAL_IP; nothing can be stopped from there.
        "spark.ui.enabled": "true",
        "spark.ui.port": str(free_port()),
        "spark.ui.killEnabled": "false",
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "200",
        "spark.sql.ui.retainedExecutions": "100",
        "spark.connect.session.manager.defaultSessionTimeout": "10m",
        # How long what a killed run was at goes on: until its stream would have been renewed, and then until nobody has
        # come for it. By default that takes 7 minutes, in which it could write over what the next run finds.
        "spark.connect.execute.reattachable.senderMaxStreamDuration": "20s",
        "spark.connect.execute.manager.detachedTimeout": "20s",
        "spark.connect.execute.manager.maintenanceInterval": "5s",
        **settings.spark_conf,
    }
