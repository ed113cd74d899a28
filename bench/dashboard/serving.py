"""The dashboard in a process of its own, as an operator runs it."""

import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness.options import REPOSITORY
from clientmgr.base.settings import Settings
from clientmgr.local.embedded.server import free_port

START_WITHIN_S = 60.0


@contextmanager
def served(settings: Settings) -> Iterator[str]:
    """Gives its address; it is gone at the end."""
    # Nobody answers on the others' ports: a refused connection is what their absence costs.
    chosen = {"dashboard_port": free_port(), "live_ws_port": free_port(), "dagster_port": free_port()}
    settings = settings.model_copy(update=chosen)
    command = [sys.executable, "-m", "clientmgr", "run", "dashboard"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, env={**os.environ, **settings.environment()}, cwd=REPOSITORY, stdout=log, stderr=log
        )
        try:
            address = f"http://127.0.0.1:{settings.dashboard_port}"
            deadline = time.monotonic() + START_WITHIN_S
            while not _answers(address):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"the dashboard does not answer: {log.read().decode(errors='replace')}")
                time.sleep(0.05)
            yield address
        finally:
            process.terminate()
            process.wait(30)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=5):  # noqa: S310  # our own
            return True
    except (urllib.error.URLError, OSError):
        return False
