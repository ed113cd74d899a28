"""`python -m clientmgr_dagster.daemon WORKSPACE`: what `clientmgr dagster daemon` becomes.

Dagster's own daemon, but its threads look where there are news.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from dagster import DagsterInstance
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.controller import daemon_controller_from_instance
from dagster._daemon.daemon import DagsterDaemon
from dagster._utils.interrupts import capture_interrupts, setup_interrupt_handlers

from clientmgr_dagster.daemon.news import News, follow
from clientmgr_dagster.daemon.threads import resting_daemons

SIGN_OF_LIFE_EVERY_S: Final = 90
"""Each thread's. Who watches gives it up for dead later (clientmgr/operations/dagster_standing.py)."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="clientmgr_dagster.daemon")
    parser.add_argument("workspace")
    parser.add_argument("--log-level", default="info")
    options = parser.parse_args(arguments)
    setup_interrupt_handlers()
    try:
        with capture_interrupts(), DagsterInstance.get() as instance:
            run(instance, options.workspace, options.log_level)
    except KeyboardInterrupt:
        return 0
    return 1


def run(instance: DagsterInstance, workspace: str, log_level: str) -> None:
    """Until a signal ends it, by KeyboardInterrupt."""
    news = News()
    follow(news, os.environ["DAGSTER_POSTGRES_URL"])

    def daemons(of: DagsterInstance) -> Sequence[DagsterDaemon[Any]]:
        return resting_daemons(of, news)

    with daemon_controller_from_instance(
        instance,
        WorkspaceFileTarget([workspace]),
        heartbeat_interval_seconds=SIGN_OF_LIFE_EVERY_S,
        gen_daemons=daemons,
        log_level=log_level,
        log_format="json",
    ) as controller:
        controller.check_daemon_loop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
