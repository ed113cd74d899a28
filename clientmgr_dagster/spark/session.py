"""The Spark session, as a resource: on this machine, on a cluster or on Spark Connect, by settings alone."""

import functools
import os
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession

from clientmgr.base.database import Database
from clientmgr.base.java import spark_environment
from clientmgr.base.settings import Settings, load_settings
from clientmgr_dagster.spark.batch_jobs import order_for
from clientmgr_dagster.spark.pipes import Launcher, run_by_pipes
from clientmgr_dagster.spark.sql_config import sql_config
from clientmgr_dagster.spark.stopping import cancel_jobs, interrupts_stay_as_they_are, tag_of

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

APP_NAME = "client-manager"
# What Spark hides in its UI, logs and plans; its default, and the URLs in which libpq and we put passwords.
REDACTED = r"(?i)secret|password|passwd|token|access[.]?key|credential|_url\b"


class SparkResource(LazyPySparkResource):
    """A session that starts when it is first needed. `spark_config` overrides the settings."""

    spark_config: dict[str, Any] = Field(default_factory=dict)
    _run_id: str = PrivateAttr(default="")

    @functools.cached_property
    def settings(self) -> Settings:
        return load_settings()

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        self._run_id = "" if context.run is None else context.run.run_id

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        if self._spark_session is not None and self._run_id:
            cancel_jobs(self._spark_session, self._run_id)

    def launcher(self, settings: Settings) -> Launcher | None:
        """What runs jobs outside of this process, by Dagster Pipes. None: this session does."""
        if settings.spark_run_by == "session":
            return None
        from clientmgr_dagster.spark.submit import SparkSubmit

        return SparkSubmit(settings, {**session_config(settings), **self.spark_config})

    def run(
        self,
        context: dg.AssetExecutionContext,
        job: Callable[Concatenate[SparkSession, Database, Settings, Parameters], Result],
        database: Database,
        settings: Settings,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Run a function of `batch_jobs.py` with these parameters, where the settings say: the caller need not know."""
        launcher = self.launcher(settings)
        if launcher is None:
            return job(self.spark_session, database, settings, *args, **kwargs)
        result: Result = run_by_pipes(launcher, context, job, order_for(job, settings, args, kwargs))
        return result

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = start_session(self.settings, self.spark_config)
            if self._run_id:
                self._spark_session.addTag(tag_of(self._run_id))


def start_session(settings: Settings, more: dict[str, Any] | None = None) -> SparkSession:
    """The session that the settings describe. One that already runs in this process is used as it is."""
    if not settings.spark_connect_url:
        # The JVM and the Python of local workers are started by this process, with its environment.
        for name, value in spark_environment(settings).items():
            if not os.environ.get(name):
                os.environ[name] = value
    builder = SparkSession.builder
    for name, value in {**session_config(settings), **(more or {})}.items():
        builder = builder.config(name, value)
    with interrupts_stay_as_they_are():
        return builder.getOrCreate()


def session_config(settings: Settings) -> dict[str, str]:
    """Spark's settings for ours. No credentials: those travel inside the data sources' classes."""
    config = sql_config(settings)
    if settings.spark_connect_url:
        config["spark.remote"] = settings.spark_connect_url
    else:
        config |= {
            "spark.master": settings.spark_master,
            "spark.app.name": APP_NAME,
            "spark.log.level": "WARN",
            "spark.redaction.regex": REDACTED,
            "spark.sql.redaction.options.regex": REDACTED,
            # Each run is a driver of its own: a UI for each would take one port after the other.
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(settings.data_dir.resolve() / "spark-warehouse"),
        }
        if settings.spark_master.startswith("local"):
            # Nobody else is to reach it, and a machine's own name need not resolve.
            config |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return config | settings.spark_conf
