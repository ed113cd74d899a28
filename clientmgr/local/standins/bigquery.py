"""A BigQuery on this machine: bqemulator, REST and Storage Read."""

import contextlib
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from clientmgr.contact_deletions.bigquery import stand_in_client
from clientmgr.local.children.guarded import GuardedProcess
from clientmgr.local.embedded.server import LOOPBACK, free_port
from clientmgr.local.standins.server import StandIn

if TYPE_CHECKING:
    from google.cloud import bigquery

PROJECT = "stand-in"
DATASET = "contacts"
# Without it in place the emulator wants to fetch it from the internet.
_INSTALL_EXTENSION = "import duckdb_extensions; duckdb_extensions.import_extension('spatial')"


class BigQueryStandIn(StandIn):
    """Made for the deleted contacts: has their dataset, and pages are put aside in it."""

    name = "BigQuery stand-in"

    def __init__(self, folder: Path, *, port: int = 0, storage_port: int = 0, venv: Path | None = None) -> None:
        super().__init__(folder, port=port, venv=venv)
        self._storage_port = storage_port
        self._configured_storage_port = storage_port

    @property
    def settings(self) -> dict[str, str]:
        """What `Settings` are to say to reach it."""
        return {
            "bigquery_project": PROJECT,
            "bigquery_endpoint": f"http://{LOOPBACK}:{self.port}",
            "bigquery_storage_endpoint": f"{LOOPBACK}:{self._storage_port}",
            "bigquery_scratch_dataset": DATASET,
        }

    def client(self) -> "bigquery.Client":
        """Close it after use."""
        return stand_in_client(PROJECT, f"http://{LOOPBACK}:{self.port}")

    def start(self) -> None:
        super().start()
        self.execute(f"CREATE SCHEMA IF NOT EXISTS {DATASET}")

    def execute(self, sql: str) -> None:
        with contextlib.closing(self.client()) as client:
            client.query(sql, timeout=30, retry=None, job_retry=None).result(timeout=60)

    def _prepare(self) -> None:
        super()._prepare()
        command: list[str | Path] = [self._program("python"), "-c", _INSTALL_EXTENSION]
        subprocess.run(command, env={"HOME": str(self.folder)}, check=True, capture_output=True)

    def _launch(self) -> GuardedProcess:
        self._storage_port = self._configured_storage_port or free_port()
        rest = ["--rest-host", LOOPBACK, "--rest-port", str(self.port)]
        storage = ["--grpc-host", LOOPBACK, "--grpc-port", str(self._storage_port)]
        options: list[str | Path] = [
            "--ephemeral",
            "--log-level",
            "warning",
            "--data-dir",
            self.folder,
            *rest,
            *storage,
        ]
        return self._run([self._program("bqemulator"), "start", *options], {})

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/", timeout=2):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
