"""Where Dagster's code server listens: a Unix socket, so that nobody but its own user can reach it."""

import hashlib
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Final

from clientmgr.base.errors import SettingsError
from clientmgr.base.private_files import ensure_private_folder
from clientmgr.base.settings import Settings

NAME: Final = "code-server.sock"
LONGEST_PATH: Final = 107
"""Of a Unix socket, in bytes: the kernel's limit."""
LONGEST_START_S: Final = 60.0
LOOK_EVERY_S: Final = 0.1


def code_server_socket(settings: Settings) -> Path:
    """As DAGSTER_CODE_SERVER_SOCKET says. Without it below DATA_DIR, or in a folder of its own if that is too deep."""
    if settings.dagster_code_server_socket:
        chosen = Path(settings.dagster_code_server_socket).absolute()
        if len(bytes(chosen)) > LONGEST_PATH:
            raise SettingsError(f"DAGSTER_CODE_SERVER_SOCKET: expected up to {LONGEST_PATH} bytes, got {chosen}")
        return chosen
    folder = settings.data_dir.resolve() / "dagster"
    if len(bytes(folder / NAME)) > LONGEST_PATH:
        digest = hashlib.sha256(bytes(folder)).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / f"clientmgr-{os.geteuid()}-{digest}"
    ensure_private_folder(folder)
    return folder / NAME


def wait_until_code_server_listens(path: Path, *, longest_s: float = LONGEST_START_S) -> bool:
    """Give a code server that starts along with us the time to load its definitions. False: it does not listen yet.

    Dagster's daemon and webserver come up without one and find it later, but not without a page of traceback each.
    """
    give_up_at = time.monotonic() + longest_s
    while not _listens(path):
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(str(path))
        except OSError:
            return False
    return True
