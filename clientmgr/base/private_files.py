"""Files with secrets: readable by their owner alone, and never seen half written."""

import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from clientmgr.base.errors import SettingsError


def write_private(file: Path, text: str) -> None:
    """Write or replace `file` in one step."""
    with _written_beside(file, text) as fresh:
        fresh.replace(file)


def create_private(file: Path, text: str) -> None:
    """Write `file` in one step unless it is there already. Of several who try at once, one succeeds."""
    with _written_beside(file, text) as fresh, contextlib.suppress(FileExistsError):
        file.hardlink_to(fresh)


def ensure_private(file: Path, setting: str) -> None:
    """Refuse a file that others than its owner may read, by the name of the setting that names the file.

    A file of root's that we read through a group of ours is fine: so come the secrets of Kubernetes and of systemd.
    """
    try:
        found = file.stat()
    except OSError as error:
        raise SettingsError(f"{setting}: {file} can't be read: {error.strerror}") from None
    mode, through_group = found.st_mode, found.st_uid == 0 != os.geteuid() and found.st_gid in _own_groups()
    if mode & stat.S_IROTH or (mode & stat.S_IRGRP and not through_group):
        raise SettingsError(
            f"{setting}: {file} may be read by others (mode {stat.S_IMODE(mode):04o}); `chmod 600 {file}` mends it"
        )


def kept_secret(folder: Path, name: str) -> str:
    """The random secret of that name in `folder`, made on first use."""
    file = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        create_private(file, secrets.token_hex(32))
    return file.read_text()


def _own_groups() -> set[int]:
    return {os.getegid(), *os.getgroups()}


@contextlib.contextmanager
def _written_beside(file: Path, text: str) -> Iterator[Path]:
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)  # with mode 0600
    fresh = Path(name)
    try:
        with os.fdopen(descriptor, "w") as output:
            output.write(text)
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)
