"""Spark's settings for ours, as text. Neither Spark nor Dagster is imported."""

from clientmgr.base.settings import Settings

APP_NAME = "client-manager"
# What Spark hides in its UI, logs and plans; its default, and the URLs in which libpq and we put passwords.
REDACTED = r"(?i)secret|password|passwd|token|access[.]?key|credential|_url\b"
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options. Most of a short job is the start of a JVM that compiles what it will never run again."""


def is_local(settings: Settings) -> bool:
    """Whether Spark's tasks run in the JVM's own machine, as threads of it."""
    return settings.spark_master.startswith("local")


def session_config(settings: Settings) -> dict[str, str]:
    """For a session, wherever Spark runs. No credentials: those travel inside the data sources' classes."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.shuffle.partitions": str(settings.spark_partitions),
    }


def local_config(settings: Settings) -> dict[str, str]:
    """For a driver that this machine starts."""
    config = {
        "spark.master": settings.spark_master,
        "spark.app.name": APP_NAME,
        "spark.log.level": "WARN",
        "spark.redaction.regex": REDACTED,
        "spark.sql.redaction.options.regex": REDACTED,
        # Each run is a driver of its own: a UI for each would take one port after the other.
        "spark.ui.enabled": "false",
        # Nobody sits at this console: bars would be warnings in the log.
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(settings.data_dir.resolve() / "spark-warehouse"),
    }
    if is_local(settings):
        # Nobody else is to reach it, and a machine's own name need not resolve.
        config |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        config |= {"spark.driver.extraJavaOptions": QUICK_START}
    return config
