"""The database of `clientmgr pubsub-gateway --emulator`: embedded, quick to start, and thrown away at the end.

It goes by nothing that is configured for the real system: whoever tests has another application's settings around.
"""

import contextlib
import fcntl
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from clientmgr.audit.log import AuditLogger
from clientmgr.base.data_folder import lock_folder, with_audit_key
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings, load_settings
from clientmgr.local.embedded.postgres import EmbeddedPostgres, PostgresTuning
from clientmgr.local.embedded.server import clear_file_errors
from clientmgr.local.processes.supervisor import Supervisor
from clientmgr.operations.migrations import migrate_database

PREFIX: Final = "clientmgr-emulator-"
ABANDONED_AFTER_S: Final = 60.0
NOT_FROM_OUTSIDE: Final[dict[str, Any]] = {
    "database_url": "",
    "database_ddl_url": "",
    "database_writer_url": "",
    "database_reader_url": "",
    "dagster_database_url": "",
    "redis_url": "",
    "metrics_port": 0,
    "pubsub_gateway_identities": "",
    "pubsub_gateway_tls_certificate": "",
    "pubsub_gateway_tls_key": "",
    "pubsub_gateway_client_ca": "",
    "pubsub_gateway_tls_by_proxy": False,
    # Google's emulator knows no such limits, and a suite may make a topic a test.
    "pubsub_gateway_max_topics": 1_000_000,
    "pubsub_gateway_max_subscriptions": 1_000_000,
}


def emulator_settings(**overrides: Any) -> Settings:
    """Settings of an emulator, without a database yet. Its log is quiet unless LOG_LEVEL says otherwise."""
    settings = load_settings(**{**NOT_FROM_OUTSIDE, **overrides})
    return (
        settings if "log_level" in settings.model_fields_set else settings.model_copy(update={"log_level": "warning"})
    )


@contextlib.contextmanager
def emulator_database(settings: Settings, data_dir: Path | None) -> Iterator[Settings]:
    """The settings with a running database, in `data_dir` to be kept, or in a folder that is removed at the end."""
    with contextlib.ExitStack() as at_end:
        if data_dir is None:
            remove_abandoned(Path(tempfile.gettempdir()))
            folder = Path(at_end.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)))
        else:
            folder = data_dir
        with clear_file_errors(folder):
            at_end.enter_context(lock_folder(folder))
            # What is thrown away need not survive a crash of the machine; it survives one of any process.
            tuning = PostgresTuning(shared_buffers="128MB", fsync=data_dir is not None)
            postgres = EmbeddedPostgres(folder / "postgres", tuning=tuning)
            at_end.callback(postgres.stop)
            postgres.start()
        found = {"data_dir": folder, "database_url": postgres.url(), **postgres.role_settings()}
        ready = with_audit_key(settings.model_copy(update=found))
        migrate_database(Database.from_settings(ready), audit=AuditLogger.from_settings(ready))
        with _kept_running(postgres):
            yield ready


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of emulators that were killed: nobody holds their locks."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), (folder / "lock").open() as lock:
            if time.time() - (folder / "lock").stat().st_mtime < ABANDONED_AFTER_S:
                continue  # perhaps about to take its lock
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _kept_running(postgres: EmbeddedPostgres) -> Iterator[None]:
    """A crashed server is started again, on the port that the gateway knows."""
    stop = threading.Event()
    watcher = threading.Thread(target=Supervisor([postgres]).run, args=(stop,), name="supervisor")
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
