"""Where Dagster's code server listens: a Unix socket, so that nobody but its own user can reach it."""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

from clientmgr.base.errors import SettingsError
from clientmgr.base.private_files import ensure_private_folder
from clientmgr.base.settings import Settings

NAME: Final = "code-server.sock"
LONGEST_PATH: Final = 107
"""Of a Unix socket, in bytes: the kernel's limit."""


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
