"""A folder in memory for the tests' PostgreSQL server: it makes a database for half of the tests, 700 files each."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types

MEMORY = Path("/dev/shm")  # noqa: S108  # Linux has it in memory; containers often have 64 MB of it
ROOM = 2 * 1024**3
"""What has to be free, in the file system and of the machine's memory besides. A server takes a third of it."""
_LOCK = "in-use"


@contextlib.contextmanager
def memory_folder(otherwise: Path) -> Iterator[Path]:
    """An empty folder in memory, gone at the end; where there is no room for one, `otherwise`."""
    if not _has_room():
        yield otherwise
        return
    prefix = f"clientmgr-tests-{os.geteuid()}-"
    for left in MEMORY.glob(f"{prefix}*"):
        _remove_unless_in_use(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY))
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _has_room() -> bool:
    if not os.access(MEMORY, os.W_OK):
        return False
    return shutil.disk_usage(MEMORY).free >= ROOM and psutil.virtual_memory().available >= 2 * ROOM


def _remove_unless_in_use(folder: Path) -> None:
    """What a killed session left. One that has just been made has no lock yet, and is empty."""
    with contextlib.suppress(OSError), (folder / _LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
