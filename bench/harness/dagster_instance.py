"""A Dagster instance as the system's daemon has it, in this process, on a benchmark's PostgreSQL."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import dagster as dg

from bench.harness.servers import BenchPostgres
from clientmgr.local.processes.dagster_home import write_dagster_home
from clientmgr.local.processes.programs import config_file

QUIET: Final[dict[str, Any]] = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
"""Run config: a run in this process tells the console of each step, and each tenant, otherwise."""


@contextlib.contextmanager
def dagster_instance(
    server: BenchPostgres, database: str, *, plans_whole_runs: bool = True
) -> Iterator[dg.DagsterInstance]:
    """`plans_whole_runs`: one planned event names all tenants of a run."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        before = dict(os.environ)
        os.environ |= {
            "DAGSTER_POSTGRES_URL": server.url(database),
            "DAGSTER_ARTIFACTS_DIR": folder,
            "DAGSTER_EVENT_BATCH_SIZE": "500",
            "DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS": "1" if plans_whole_runs else "",
        }
        write_dagster_home(Path(folder), config_file("dagster.yaml"))
        try:
            with dg.DagsterInstance.from_config(folder) as instance:
                yield instance
        finally:
            os.environ.clear()
            os.environ.update(before)
