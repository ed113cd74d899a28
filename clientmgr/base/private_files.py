"""Files with secrets and the folders they are in: open to their owner alone, and never seen half written."""

import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from clientmgr.base.errors import SettingsError
from clientmgr.base.strong_keys import weakness

OPEN_TO_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
"""What nobody else may do in a folder of ours. To pass through it is no harm: what is in it is closed by itself."""


def ensure_private_folder(folder: Path) -> None:
    """Make `folder`, or close it to others. Somebody else's is refused: they could read and replace our keys."""
    folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise SettingsError(
            f"{folder} (DATA_DIR) belongs to user {found.st_uid}, who could read and replace the keys and passwords "
            f"in it, and this runs as user {os.geteuid()}. Run it as its owner, or choose a folder of your own."
        )
    if found.st_mode & OPEN_TO_OTHERS:
        folder.chmod(stat.S_IRWXU)


def write_private(file: Path, text: str) -> None:
    """Write or replace `file` in one step."""
    with _written_beside(file, text) as fresh:
        fresh.replace(file)


def create_private(file: Path, text: str) -> None:
    """Write `file` in one step unless it is there already. Of several who try at once, one succeeds."""
    with _written_beside(file, text) as fresh, contextlib.suppress(FileExistsError):
        file.hardlink_to(fresh)


def kept_secret(folder: Path, name: str) -> str:
    """The random secret of that name in `folder`, made on first use."""
    file = folder / name
    ensure_private_folder(folder)
    if not file.exists():
        create_private(file, secrets.token_hex(32))
    ensure_own(file)
    ensure_private(file, f"DATA_DIR: {name}")
    secret = file.read_text()
    if problem := weakness(secret):
        raise SettingsError(f"DATA_DIR: expected a key that nobody can guess in {file}, but it is {problem}")
    return secret


def ensure_own(file: Path) -> None:
    """Refuse what somebody else planted in a folder of ours while it was open: a link, or a file of their own."""
    try:
        state = file.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(state.st_mode) or state.st_uid not in (os.geteuid(), file.parent.stat().st_uid):
        raise SettingsError(
            f"DATA_DIR: {file} is a link or belongs to somebody else, and was not made by us. "
            "Look where it comes from, and remove it."
        )


def ensure_private(file: Path, setting: str) -> None:
    """Refuse a file with secrets that others may read or change.

    A file of another owner may be readable for a group of ours: it is how systemd and Kubernetes hand us secrets.
    """
    try:
        state = file.stat()
    except OSError as error:
        raise SettingsError(f"{setting}: {file} can't be read: {error.strerror}") from None
    is_handed_to_us = state.st_uid != os.geteuid() and state.st_gid in {os.getegid(), *os.getgroups()}
    if state.st_mode & (0o037 if is_handed_to_us else 0o077):
        raise SettingsError(
            f"{setting}: others may read or change {file} (mode {stat.S_IMODE(state.st_mode):04o}); "
            f"do `chmod 600 {file}`, or 640 where it belongs to another user"
        )


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
