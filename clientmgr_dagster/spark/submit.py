"""A batch job as an application of its own, by spark-submit in client mode: the driver beside us, executors there.

The child gets what its job needs and no more: no environment of ours but what is named here, and of our secrets those
of the job, as files that only we can read. Neither is on a command line or in Spark's settings, which its UI shows.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pyspark
from dagster import PipesClientCompletedInvocation, PipesTempFileContextInjector, PipesTempFileMessageReader

from clientmgr.base.errors import SettingsError
from clientmgr.base.java import spark_environment
from clientmgr.base.private_files import write_private
from clientmgr.base.settings import Settings
from clientmgr_dagster.spark.batch_jobs import BatchJob
from clientmgr_dagster.spark.job import GRACE_S, LOCK, SECRETS

_SCRIPT: Final = "from clientmgr_dagster.spark.job import main\n\nraise SystemExit(main())\n"
_KEPT: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "KUBECONFIG", "SSL_CERT_FILE")
_KEPT_PREFIXES: Final = ("LC_", "SPARK_", "HADOOP_", "YARN_", "KUBERNETES_SERVICE_", "KRB5")
"""Where clusters are, and how they are spoken to."""


class SparkSubmit:
    """Launches jobs with `spark-submit`, to the master that the settings name."""

    def __init__(self, settings: Settings, config: Mapping[str, str]) -> None:
        """`config`: Spark's own settings, the master among them."""
        if settings.spark_connect_url:
            raise SettingsError("SPARK_CONNECT_URL: expected nothing, as SPARK_RUN_BY=submit goes to SPARK_MASTER")
        self._settings = settings
        self._config = config

    def launch(
        self, context: dg.OpExecutionContext, job: BatchJob, extras: dict[str, Any]
    ) -> PipesClientCompletedInvocation:
        secrets = self._secrets(job)
        with (
            tempfile.TemporaryDirectory(prefix="clientmgr-job-") as name,  # for us alone
            dg.open_pipes_session(
                context, PipesTempFileContextInjector(), PipesTempFileMessageReader(), extras
            ) as session,
        ):
            folder = Path(name)
            for setting, value in secrets.items():
                write_private(folder / setting, value)
            with _locked(folder / "lock") as lock:
                own = {SECRETS: name, LOCK: str(lock), **session.get_bootstrap_env_vars()}
                code = _run(self._command(folder), {**self._environment(job), **own}, folder)
            context.log.info(f"{job.name}: spark-submit ended with {code}")
        return PipesClientCompletedInvocation(session)

    def _secrets(self, job: BatchJob) -> dict[str, str]:
        given = self._settings.environment()
        for name in job.secrets:
            if not given[name]:
                raise SettingsError(f"{name}: not set, and the job {job.name} is handed no other login or key")
        return {name: given[name] for name in job.secrets}

    def _command(self, folder: Path) -> list[str | Path]:
        # A file, because SPARK_CONF may hold secrets of its own.
        write_private(folder / "spark.conf", _properties(self._config))
        write_private(folder / "job.py", _SCRIPT)
        program = self._settings.spark_submit or Path(pyspark.__file__).parent / "bin" / "spark-submit"
        return [program, "--properties-file", folder / "spark.conf", "--load-spark-defaults", folder / "job.py"]

    def _environment(self, job: BatchJob) -> dict[str, str]:
        ours = type(self._settings).model_fields
        prefixes = (*_KEPT_PREFIXES, *job.credentials)
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or (name.startswith(prefixes) and name.lower() not in ours)
        }
        if not self._settings.spark_submit:
            kept["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
        return {
            **kept,
            **spark_environment(self._settings),
            # The working directory is another: a `.env` in ours has everything.
            "PYTHONPATH": os.pathsep.join(str(Path(one).resolve()) for one in sys.path if one),
        }


def _run(command: list[str | Path], environment: Mapping[str, str], folder: Path) -> int:
    """Its exit code. Whatever keeps us from waiting ends it, and all that it started, before that goes on."""
    # A group of its own: spark-submit is a JVM, and Python its child.
    process = subprocess.Popen(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait()
    except BaseException:
        _end(process)
        raise


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[Path]:
    """Locked until the end of the `with`, or of our process, however it ends."""
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield file


def _properties(config: Mapping[str, str]) -> str:
    """As Java reads a file of properties."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in config.items())


def _escaped(text: str) -> str:
    plain = "".join(f"\\{one}" if one in "\\=:#! " else one for one in text)
    return (
        plain.replace("\n", "\\n")
        .replace("\r", "\\r")
        .replace("\t", "\\t")
        .encode("ascii", "backslashreplace")
        .decode()
    )
