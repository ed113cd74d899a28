"""`python -m clientmgr_dagster.code_server SOCKET`: what `clientmgr dagster code-server` becomes.

It listens on a Unix socket that only its own user may open: whoever reaches a code server can have it run anything, and
Dagster asks nobody who they are.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from multiprocessing.context import ForkServerContext
from types import FrameType

from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.utils import FuturesAwareThreadPoolExecutor
from dagster._grpc.server import DagsterGrpcServer
from dagster._utils.log import configure_loggers

from clientmgr.base.settings import load_settings
from clientmgr.operations.heartbeats import beating
from clientmgr_dagster.code_server.servicer import CodeServicer
from clientmgr_dagster.code_server.template import start_template

MODULE = "clientmgr_dagster.definitions"
LOCATION = "client_manager"
# Sensors wait for messages in here, a thread each, and runs for their start.
THREADS = 32


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="clientmgr_dagster.code_server")
    parser.add_argument("socket")
    parser.add_argument("--module", default=MODULE)
    parser.add_argument("--location", default=LOCATION)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds that runs may take to end by themselves")
    options = parser.parse_args(arguments)
    os.umask(0o077)
    runs_context = start_template(options.module)
    configure_loggers(formatter="json", log_level=options.log_level.upper())
    _raise_on_signals()
    with beating(load_settings(), "dagster-code-server"):
        try:
            serve(options.socket, options.module, options.location, options.patience, runs_context)
        except KeyboardInterrupt:
            return 0
    return 1


def serve(socket: str, module: str, location: str, patience_s: float, runs_context: ForkServerContext) -> None:
    """Until a signal ends it, by KeyboardInterrupt."""
    logger = logging.getLogger("dagster.code_server")
    ended, threads = threading.Event(), FuturesAwareThreadPoolExecutor(max_workers=THREADS)
    servicer = CodeServicer(
        runs_context=runs_context,
        patience_s=patience_s,
        server_termination_event=ended,
        logger=logger,
        server_threadpool_executor=threads,
        loadable_target_origin=LoadableTargetOrigin(executable_path=sys.executable, module_name=module),
        location_name=location,
    )
    server = DagsterGrpcServer(ended, servicer, logger, threads, socket=socket)
    server.serve()  # type: ignore[no-untyped-call]  # Dagster's


def _raise_on_signals() -> None:
    """The first signal begins the stop. The second ends us at once; the runs then end by themselves."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
