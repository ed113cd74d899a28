"""The process that runs are forked from: a fork of the code server itself, made while that has one thread.

So what both have imported, and what the runs have, is in memory once. It is multiprocessing's fork server, which starts
as a new Python otherwise and imports everything anew: 180 MB more.
"""

import contextlib
import gc
import importlib
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.context import ForkServerContext
from typing import Any, Final

from clientmgr_dagster.forks import ONE_THREAD

NEEDED_BY_EVERY_RUN: Final = (
    "dagster._core.secrets.env_file",
    "dagster._grpc.impl",
    "dagster_postgres",
    "psycopg2.extras",
    "upath.implementations.local",
    "watchdog.observers.polling",
    "clientmgr_dagster.storage",
)
"""Besides the definitions. Whatever is missing here is imported by each run: slower, and no worse."""
ITS_OWN: Final = "clientmgr_dagster.code_server.run_process"
"""Imported by the template alone."""


def start_template(module_name: str) -> ForkServerContext:
    """Runs are to be made in this context. To be called before there is a second thread, or a handler of signals."""
    os.environ |= ONE_THREAD
    shared = [module_name, *NEEDED_BY_EVERY_RUN]
    for name in shared:
        # Dagster imports it once more, and says what is wrong.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*shared, ITS_OWN])
    resource_tracker.ensure_running()
    # What is imported by now stays shared as long as nobody counts its references anew.
    gc.collect()
    gc.freeze()
    with _forked_instead_of_started():
        forkserver.ensure_running()
    return context


@contextmanager
def _forked_instead_of_started() -> Iterator[None]:
    """multiprocessing has no setting for it. Should the template die, a new one is started as a Python of its own."""
    started = util.spawnv_passfds
    util.spawnv_passfds = _fork
    try:
        yield
    finally:
        util.spawnv_passfds = started


def _fork(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """With these open files alone, as a Python of its own would have."""
    pid = os.fork()
    if pid:
        return pid
    try:
        _close_all_but(passfds)
        exec(args[-1], {})  # noqa: S102  # what multiprocessing would have Python run
    finally:
        os._exit(0)


def _close_all_but(passed: Sequence[int]) -> None:
    begin = 3
    for number in sorted(passed):
        os.closerange(begin, number)
        begin = number + 1
    os.closerange(begin, os.sysconf("SC_OPEN_MAX"))
