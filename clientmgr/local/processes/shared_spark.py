"""The shared Spark server in `up`: where it listens, its token, and what its program is handed."""

import sys
from typing import Final

from pydantic import SecretStr

from clientmgr.base.private_files import kept_secret
from clientmgr.base.settings import Settings
from clientmgr.contracts.daemon_entry import DaemonEntry
from clientmgr.contracts.handing_out import handed_to
from clientmgr.local.embedded.server import free_port
from clientmgr.local.processes.supervisor import Program, forward_console_line, forward_line
from clientmgr_dagster.spark.config import is_local

NAME: Final = "spark"
GRACE_S: Final = 15.0
_NOT_FOR_IT: Final = {"REDIS_URL": "", "METRICS_TOKEN": ""}
"""Of what every daemon is handed."""
_HANDED: Final = DaemonEntry(
    NAME,
    "the Spark Connect server that all runs share",
    settings=("SPARK_CONF", "SPARK_CONNECT_TOKEN", "BIGQUERY_PROJECT", "DYNAMODB_ENDPOINT"),
)


def with_shared_spark(settings: Settings) -> Settings:
    """Settings that name the shared server, where one is wanted: runs find it by them."""
    if not settings.spark_shared or settings.spark_connect_url or not is_local(settings):
        return settings.model_copy(update={"spark_shared": False})
    token = settings.spark_connect_token.get_secret_value() or kept_secret(settings.data_dir, "spark_connect_token")
    # By this name: pyspark sends a token to others by TLS alone.
    url = f"sc://localhost:{free_port()}"
    return settings.model_copy(update={"spark_connect_url": url, "spark_connect_token": SecretStr(token)})


def shared_spark_programs(settings: Settings, environment: dict[str, str]) -> list[Program]:
    """What listens for runs and starts the server for them; none where each run has its own Spark."""
    if not settings.spark_shared:
        return []
    return [
        Program(
            NAME,
            [sys.executable, "-m", "clientmgr.local.shared_spark"],
            handed_to(_HANDED, environment) | _NOT_FOR_IT,
            grace_seconds=GRACE_S,
            forward=forward_line if environment.get("LOG_FORMAT") == "json" else forward_console_line,
        )
    ]
