"""The data folder: who owns it, where the servers of a running system are, and the secrets that are kept in it."""

import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO

from pydantic import SecretStr

from clientmgr.base.errors import EmbeddedServerError, SettingsError
from clientmgr.base.private_files import ensure_own, ensure_private_folder, kept_secret
from clientmgr.base.settings import Settings

LOCK_PATIENCE_S = 1.0
"""Whoever only looks whether a stack is running holds the folder's lock for a moment."""


DATABASE_SETTINGS = ("database_url", "database_ddl_url", "database_writer_url", "database_reader_url")
"""Whoever sets one of them has a database."""


NOTED = (*DATABASE_SETTINGS, "dagster_database_url", "redis_url")
"""What the note of a running system says."""


def names_a_database(settings: Settings) -> bool:
    return any(getattr(settings, name) for name in DATABASE_SETTINGS)


def attach(settings: Settings, *, as_owner: bool = False, with_key: bool = True) -> Settings:
    """Settings completed with the embedded servers that another process of ours runs in the same folder.

    The owner's login is for who migrates, and the audit log's key for who appends to it or makes keyed hashes.
    """
    if not names_a_database(settings) or not settings.redis_url:
        running = _running_servers(settings.data_dir)
        if names_a_database(settings):
            # Whoever was handed some logins is not to have more of them.
            running = {name: url for name, url in running.items() if name == "redis_url"}
        elif not as_owner:
            running.pop("database_url", None)
        settings = settings.model_copy(
            update={name: url for name, url in running.items() if not getattr(settings, name)}
        )
    if not names_a_database(settings):
        raise SettingsError(
            f"DATABASE_URL: not set, and no embedded stack is running in {settings.data_dir}. "
            "Start one with `clientmgr up`, or set DATABASE_URL."
        )
    return with_audit_key(settings) if with_key else settings


def lock_folder(folder: Path) -> IO[str]:
    """Become the one owner of `folder`, or say who is."""
    ensure_private_folder(folder)
    ensure_own(folder / "lock")
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


def running_note(folder: Path) -> Path:
    return folder / "running.json"


def _running_servers(folder: Path) -> dict[str, str]:
    """Where the servers are, if somebody holds the folder's lock; a note without a holder is a dead run's."""
    note_file = running_note(folder)
    for file in (folder / "lock", note_file):
        ensure_own(file)
    try:
        # Shared, so that two of us who look at once do not take each other for the owner.
        with (folder / "lock").open() as lock:
            if _try_lock(lock, fcntl.LOCK_SH):
                return {}
        note = json.loads(note_file.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return {name: note[name] for name in NOTED if name in note}
