"""`python -m clientmgr_dagster.spark.job`: run the batch job that Dagster Pipes names, on the Spark that started us.

Parameters and settings come with Pipes. Secrets do not: they are files in the folder that JOB_SECRETS names (a mounted
secret, or the folder that `submit.py` makes), each called as its setting; without a folder they are in the environment.
There is no Dagster here, only dagster-pipes.
"""

import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from dagster_pipes import PipesContext, open_dagster_pipes
from pyspark.sql import SparkSession

from clientmgr.base.database import Database
from clientmgr.base.errors import ClientManagerError, classify
from clientmgr.base.private_files import ensure_private
from clientmgr.base.settings import Settings, load_settings
from clientmgr_dagster.spark.batch_jobs import JOBS, ORDER, Order
from clientmgr_dagster.spark.config import session_config

SECRETS: Final = "JOB_SECRETS"
LOCK: Final = "JOB_LOCK"
"""Names a file that our run holds locked for as long as it lives. Only where both are on one machine."""
GRACE_S: Final = 20.0
"""For the driver to say goodbye to its executors. A master that hears nothing notices by itself, later."""


def main() -> int:
    if lock := os.environ.get(LOCK):
        end_with_whoever_holds(lock)
    with open_dagster_pipes() as pipes:
        return 0 if perform(pipes) else 1


def perform(pipes: PipesContext) -> bool:
    """Do what was ordered and report the result. For services that Pipes reaches by other means than the default's."""
    try:
        order = msgspec.convert(pipes.get_extra(ORDER), Order)
        settings = settings_for(order, os.environ)
        # Master, memory and the like are whoever's who started us. It is stopped with the process: some services have
        # one session for many jobs.
        spark = SparkSession.builder.config(map={**session_config(settings)}).getOrCreate()
        pipes.log.info(f"{order.job} is Spark's application {spark.sparkContext.applicationId}")
        result = order.call(spark=spark, database=Database.from_settings(settings), settings=settings)
    except Exception as error:  # noqa: BLE001  # whatever it is, our run is to hear of it
        # By its first line, as everywhere in Dagster's event log: what follows may name rows.
        first_line = str(error).partition("\n")[0]
        text = first_line if isinstance(error, ClientManagerError) else f"{type(error).__name__}: {first_line}"
        pipes.report_custom_message({"error": text, "kind": classify(error).value})
        sys.excepthook(*sys.exc_info())
        return False
    pipes.report_custom_message({"result": result})
    return True


def settings_for(order: Order, environment: Mapping[str, str]) -> Settings:
    """The order's settings, and the secrets that its job uses. Whatever else lies there is not read."""
    given = dict(order.settings)
    if folder := environment.get(SECRETS):
        for name in JOBS[order.job].secrets:
            file = Path(folder) / name
            ensure_private(file, SECRETS)
            given[name.lower()] = file.read_text()
    return load_settings(**given)


def end_with_whoever_holds(lock: str) -> None:
    """End this process and all of its group, Spark's JVM too, when the lock is let go: whoever started us is gone."""

    def wait() -> None:
        with Path(lock).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
        os.killpg(0, signal.SIGTERM)
        # Where that does not end all of them, us among them.
        time.sleep(GRACE_S)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, name="end with the run", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
