"""The embedded servers of one data folder: one owner at a time, and a note where others can reach them."""

import fcntl
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pydantic import SecretStr

from clientmgr.embedded.postgres import EmbeddedPostgres, PostgresTuning
from clientmgr.embedded.private_files import kept_secret, write_private
from clientmgr.embedded.redis import EmbeddedRedis
from clientmgr.embedded.server import EmbeddedServer, clear_file_errors, ensure_disk_space
from clientmgr.errors import EmbeddedServerError, SettingsError
from clientmgr.logs import get_logger
from clientmgr.settings import Settings

log = get_logger(__name__)

LOCK_PATIENCE_S = 1.0
"""Whoever only looks whether a stack is running holds the folder's lock for a moment."""


class EmbeddedStack:
    """Starts what no URL is configured for; `settings` then says where everything is.

    The folder's lock is held for as long as the servers run. The kernel releases it however we end, so that a killed
    run never blocks the next one.
    """

    def __init__(self, settings: Settings, *, tuning: PostgresTuning | None = None) -> None:
        self.settings = settings
        self._tuning = tuning
        self._lock: IO[str] | None = None
        self.servers: list[EmbeddedServer] = []

    def __enter__(self) -> Self:
        try:
            with clear_file_errors(self.settings.data_dir):
                self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        settings = self.settings
        found: dict[str, object] = {}
        if not settings.database_url or not settings.redis_url:
            self._lock = lock_folder(settings.data_dir)
            ensure_disk_space(settings.data_dir, settings.embedded_minimum_free_mb)
        if not settings.database_url:
            postgres = EmbeddedPostgres(
                settings.data_dir / "postgres", port=settings.postgres_port, tuning=self._tuning
            )
            self._run(postgres)
            found["database_url"] = postgres.url()
        if not settings.redis_url:
            redis = EmbeddedRedis(settings.data_dir / "redis", port=settings.redis_port)
            self._run(redis)
            found["redis_url"] = redis.url
        self.settings = with_audit_key(settings.model_copy(update=found))
        if found:
            write_private(_note(settings.data_dir), json.dumps({"pid": os.getpid(), **found}))

    def _run(self, server: EmbeddedServer) -> None:
        self.servers.append(server)
        server.start()
        log.info("server started", name=server.name, port=server.port)

    def stop(self) -> None:
        """Stop the servers, last started first."""
        while self.servers:
            server = self.servers.pop()
            server.stop()
            log.info("server stopped", name=server.name)
        if self._lock is not None:
            _note(self.settings.data_dir).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None


def attach(settings: Settings) -> Settings:
    """Settings completed with the embedded servers that another process of ours runs in the same folder."""
    if not settings.database_url or not settings.redis_url:
        running = _running_servers(settings.data_dir)
        missing = {name: url for name, url in running.items() if not getattr(settings, name)}
        settings = settings.model_copy(update=missing)
    if not settings.database_url:
        raise SettingsError(
            f"DATABASE_URL: not set, and no embedded stack is running in {settings.data_dir}. "
            "Start one with `clientmgr up`, or set DATABASE_URL."
        )
    return with_audit_key(settings)


def lock_folder(folder: Path) -> IO[str]:
    """Become the one owner of `folder`, or say who is."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / "lock").open("a+")
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while not _try_lock(lock, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise EmbeddedServerError(
                f"{folder} is in use by another clientmgr (process {holder}); stop it, or choose another DATA_DIR"
            )
        time.sleep(0.02)
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _try_lock(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def with_audit_key(settings: Settings) -> Settings:
    """Settings with an audit key: the configured one, or the one kept in the data folder, made on first use."""
    if settings.audit_hash_key.get_secret_value():
        return settings
    return settings.model_copy(update={"audit_hash_key": SecretStr(kept_secret(settings.data_dir, "audit_hash_key"))})


def _note(folder: Path) -> Path:
    return folder / "running.json"


def _running_servers(folder: Path) -> dict[str, str]:
    """Where the servers are, if somebody holds the folder's lock; a note without a holder is a dead run's."""
    try:
        # Shared, so that two of us who look at once do not take each other for the owner.
        with (folder / "lock").open() as lock:
            if _try_lock(lock, fcntl.LOCK_SH):
                return {}
        note = json.loads(_note(folder).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return {name: note[name] for name in ("database_url", "redis_url") if name in note}
