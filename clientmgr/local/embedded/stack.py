"""The embedded servers of one data folder: one owner at a time, and a note where others can reach them."""

import json
import os
from types import TracebackType
from typing import IO, Self

from clientmgr.base.data_folder import lock_folder, names_a_database, running_note, with_audit_key
from clientmgr.base.logs import get_logger
from clientmgr.base.private_files import write_private
from clientmgr.base.settings import Settings
from clientmgr.local.embedded.postgres import EmbeddedPostgres, PostgresTuning
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.local.embedded.server import EmbeddedServer, clear_file_errors, ensure_disk_space

log = get_logger(__name__)


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
        if not names_a_database(settings) or not settings.redis_url:
            self._lock = lock_folder(settings.data_dir)
            ensure_disk_space(settings.data_dir, settings.embedded_minimum_free_mb)
        if not names_a_database(settings):
            postgres = EmbeddedPostgres(
                settings.data_dir / "postgres", port=settings.postgres_port, tuning=self._tuning
            )
            self._run(postgres)
            found |= {"database_url": postgres.url(), **postgres.role_settings()}
            if settings.dagster_database_url:
                del found["dagster_database_url"]
        if not settings.redis_url:
            redis = EmbeddedRedis(settings.data_dir / "redis", port=settings.redis_port)
            self._run(redis)
            found["redis_url"] = redis.url
        self.settings = with_audit_key(settings.model_copy(update=found))
        if found:
            write_private(running_note(settings.data_dir), json.dumps({"pid": os.getpid(), **found}))

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
            running_note(self.settings.data_dir).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None
