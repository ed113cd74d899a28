"""The Spark session, as a resource: on this machine, on a cluster or on Spark Connect, by settings alone.

A run has a session of its own. It is named after the run, and the run is tagged with where Spark shows it.
"""

import atexit
import contextlib
import functools
import os
import sys
import uuid
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from clientmgr.base.database import Database
from clientmgr.base.java import spark_environment
from clientmgr.base.settings import Settings, load_settings
from clientmgr_dagster.spark.batch_jobs import order_for
from clientmgr_dagster.spark.config import APP_NAME, is_local, local_config, session_config
from clientmgr_dagster.spark.pipes import Launcher, run_by_pipes
from clientmgr_dagster.spark.stopping import cancel_jobs, interrupts_stay_as_they_are
from clientmgr_dagster.spark.workers.nursery import running_nursery

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

APPLICATION_TAG = "clientmgr/spark_application"
UI_TAG = "clientmgr/spark_ui"
LONGEST_BACKOFF_MS = 5_000
PATIENCE_MS = 600_000
"""How long a run tries to reach a Connect server, and how long at most it sleeps before it tries again."""
_PYTHON = "PYSPARK_PYTHON"
_CONNECT_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # the name of pyspark's variable


class SparkResource(LazyPySparkResource):
    """A session that starts when it is first needed. `spark_config` overrides the settings."""

    spark_config: dict[str, Any] = Field(default_factory=dict)
    _own_session: SparkSession | None = PrivateAttr(default=None)
    _context: dg.InitResourceContext | None = PrivateAttr(default=None)

    @functools.cached_property
    def settings(self) -> Settings:
        return load_settings()

    @property
    def spark_session(self) -> SparkSession:
        """The run's session. One whose server has died since is replaced: a step that is tried again gets a new one."""
        name = self._run_id
        if self._own_session is not None and self.settings.spark_connect_url and not still_answers(self._own_session):
            with contextlib.suppress(PySparkException):
                self._own_session.stop()
            self._own_session = None
            # A name that a server has closed is not to be had again.
            name = ""
        if self._own_session is None:
            self._own_session = start_session(self.settings, self.spark_config, name=name)
            self._show_where_it_runs(self._own_session)
        return self._own_session

    @property
    def spark_context(self) -> Any:
        """Not there on Spark Connect."""
        return self.spark_session.sparkContext

    def launcher(self, settings: Settings) -> Launcher | None:
        """What runs jobs outside of this process, by Dagster Pipes. None: this session does."""
        if settings.spark_run_by == "session":
            return None
        from clientmgr_dagster.spark.submit import SparkSubmit

        return SparkSubmit(settings, {**session_config(settings), **driver_config(settings, self.spark_config)})

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

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        self._context = context

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """A session on a server that goes on without us is given back. Our own JVM ends with our process."""
        session, self._own_session = self._own_session, None
        if session is not None:
            cancel_jobs(session)
        if session is not None and self.settings.spark_connect_url:
            with contextlib.suppress(PySparkException):
                session.stop()

    @property
    def _run_id(self) -> str:
        run = None if self._context is None else self._context.run
        return "" if run is None else run.run_id

    def _show_where_it_runs(self, session: SparkSession) -> None:
        """In the run's log and in its tags."""
        if self._context is None or not self._run_id:
            return
        shown = where_it_is_shown(session, self.settings)
        if self._context.log is not None:
            self._context.log.info(" ".join(f"{name}: {value}" for name, value in shown.items()))
        # A run that somebody executes in memory is in no storage.
        if self._context.instance is not None and self._context.instance.has_run(self._run_id):
            self._context.instance.add_run_tags(self._run_id, shown)


def start_session(settings: Settings, more: dict[str, Any] | None = None, *, name: str = "") -> SparkSession:
    """The session that the settings describe. On Spark Connect it is a new one, elsewhere the process has one.

    `name`: the id of the run that it is for.
    """
    config = {**session_config(settings), **settings.spark_conf, **(more or {})}
    if settings.spark_connect_url:
        if token := settings.spark_connect_token.get_secret_value():
            os.environ[_CONNECT_TOKEN] = token
        session = _connected(_named(settings.spark_connect_url, name), config)
    else:
        _prepare_environment(settings)
        builder = SparkSession.builder.config(map={**config, **driver_config(settings, more or {})})
        with interrupts_stay_as_they_are():
            session = builder.getOrCreate()
        session.sparkContext.setJobDescription(f"{APP_NAME} run {name}" if name else APP_NAME)
    return session


def _connected(url: str, config: dict[str, Any]) -> SparkSession:
    """A new session on a Connect server, which may only just be starting, or starting again.

    Left to itself the client sleeps up to a minute between two attempts: a run would wait that long for a server that
    has been there for most of it.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    session: SparkSession = SparkSession.builder.remote(url).create()  # says nothing to the server yet
    patient = DefaultPolicy(max_backoff=LONGEST_BACKOFF_MS, max_retries=PATIENCE_MS // LONGEST_BACKOFF_MS)
    session.client.set_retry_policies([patient])
    ConnectSession.builder.config(map=config).getOrCreate()  # the one that this thread has just made
    return session


def driver_config(settings: Settings, more: dict[str, Any]) -> dict[str, Any]:
    """For a driver that this machine starts; `more` goes before the settings."""
    return {**local_config(settings), **settings.spark_conf, **more}


def still_answers(session: SparkSession) -> bool:
    """Whether it is still the session that it was: a server that was started anew knows nothing of it."""
    try:
        session.conf.get("spark.app.id")
    except (PySparkException, OSError):
        return False
    return True


def where_it_is_shown(session: SparkSession, settings: Settings) -> dict[str, str]:
    """The application's id and, where it has one, its page; tags of a run."""
    shown = {APPLICATION_TAG: str(session.conf.get("spark.app.id"))}
    if settings.spark_connect_url:
        port = session.conf.get("spark.ui.port", "")
        if (
            urlsplit(settings.spark_connect_url).hostname == "localhost"
            and port
            and session.conf.get("spark.ui.enabled", "true") == "true"
        ):
            shown[UI_TAG] = f"http://127.0.0.1:{port}/connect/session/?id={session.session_id}"  # type: ignore[attr-defined]
    elif session.sparkContext.uiWebUrl:
        shown[UI_TAG] = session.sparkContext.uiWebUrl
    return shown


def _named(url: str, run_id: str) -> str:
    """The URL with a session's id: the run's, as both are UUIDs."""
    with contextlib.suppress(ValueError):
        session_id = str(uuid.UUID(run_id))
        return f"{url}{';' if ';' in url else '/;'}user_id=dagster;session_id={session_id}"
    return url


def _prepare_environment(settings: Settings) -> None:
    """The JVM and the Python of local workers are started by this process, with its environment."""
    wanted = spark_environment(settings)
    if is_local(settings) and os.environ.get(_PYTHON, sys.executable) == sys.executable:
        os.environ.pop(_PYTHON, None)
        wanted |= _own_nursery()
    for name, value in wanted.items():
        if not os.environ.get(name):
            os.environ[name] = value


@functools.cache
def _own_nursery() -> dict[str, str]:
    """For as long as this process lives."""
    nursery = running_nursery(os.environ)
    atexit.register(nursery.__exit__, None, None, None)
    return nursery.__enter__()
