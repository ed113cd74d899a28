"""What every process has: logs, time to stop, metrics."""

from typing import Literal

from pydantic import Field, SecretStr

from clientmgr.base.settings.kinds import Port, StrongKey


class Processes:
    """Processes and logs"""

    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    log_format: Literal["auto", "console", "json"] = Field(
        "auto",
        description="auto: readable on a terminal (`up` and `demo` keep their log in DATA_DIR/clientmgr.log there and "
        "show what goes wrong), JSON in ECS field names otherwise. console: all of it, readable.",
    )
    shutdown_timeout_s: float = Field(
        20.0, gt=0, description="How long a process may take to stop before it is killed."
    )


class Metrics:
    """Metrics"""

    metrics_port: Port = Field(0, description="Port of a daemon's /metrics and /healthz. 0: not served.")
    metrics_host: str = Field(
        "127.0.0.1", description="Address of METRICS_PORT. One that others can reach needs METRICS_TOKEN."
    )
    metrics_token: StrongKey = Field(
        SecretStr(""),
        description="What a scrape of /metrics must send as `Authorization: Bearer …`. Empty: nothing, on a loopback "
        "address only.",
    )
