"""Dagster's UI as a process of ours. Only this process imports Dagster's webserver."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from dagster import DagsterInstance
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster_webserver.version import __version__

from clientmgr.base.async_main import run_until_stopped
from clientmgr.base.database import Database
from clientmgr.base.logs import configure_logging, get_logger
from clientmgr.base.settings import Settings
from clientmgr.operations.code_server_socket import wait_until_code_server_listens
from clientmgr.operations.heartbeats import beating
from clientmgr_dashboard.access.attempts import FailureReport
from clientmgr_dashboard.access.authentication import Authenticator
from clientmgr_dashboard.access.exposure import ensure_dagster_is_not_open_to_others
from clientmgr_dashboard.dagster_ui.application import Workspace, dagster_application, prepare_instance
from clientmgr_dashboard.dagster_ui.mutations import ChangesRecord
from clientmgr_dashboard.server import Service, serve

log = get_logger(__name__)

NAME = "dagster-webserver"


def run_dagster_ui(settings: Settings, workspace_file: Path) -> int:
    """Load the workspace into a code server, then serve until told to stop. DAGSTER_HOME is set by now."""
    ensure_dagster_is_not_open_to_others(settings)
    level = configure_logs(settings)
    _warn_of_different_names(settings)
    if settings.dagster_code_server_socket:
        wait_until_code_server_listens(Path(settings.dagster_code_server_socket))
    with (
        DagsterInstance.get() as instance,
        Workspace(
            instance,
            WorkspaceFileTarget([str(workspace_file)]),
            version=__version__,
            code_server_log_level=level,
        ) as workspace,
        beating(settings, NAME),
    ):
        prepare_instance(instance)

        async def main(stop: asyncio.Event) -> None:
            await serve_dagster_ui(settings, workspace, stop)

        return run_until_stopped(main, use_uvloop=False)  # which limited TLS needs


async def serve_dagster_ui(
    settings: Settings, workspace: Workspace, stop: asyncio.Event, on_ready: Callable[[int], None] = lambda _: None
) -> None:
    authenticator, record = Authenticator(settings), ChangesRecord(settings)
    loop = asyncio.get_running_loop()

    def report(failure: FailureReport) -> None:
        loop.run_in_executor(None, record.append_result, "dagster", "sign-in-failed", "refused", failure.details)

    authenticator.report = report
    service = Service(
        NAME,
        "DAGSTER_HOST",
        "DAGSTER_PORT",
        "DAGSTER_URL",
        lambda settings, port: dagster_application(settings, workspace, authenticator, record, port),
    )
    async with authenticator.watching(Database.from_settings(settings)):
        await serve(service, settings, stop, on_ready)


def configure_logs(settings: Settings) -> str:
    """Ours at the level that is set; Dagster's at `warning` where that is `info`. Returns Dagster's."""
    configure_logging(settings, process=NAME)
    level = "warning" if settings.log_level == "info" else settings.log_level
    logging.getLogger().setLevel(level.upper())
    for package in ("clientmgr", "clientmgr_dashboard"):
        logging.getLogger(package).setLevel(settings.log_level.upper())
    return level


def _warn_of_different_names(settings: Settings) -> None:
    names = {urlsplit(url).hostname for url in (settings.dashboard_url, settings.dagster_url) if url}
    if settings.dashboard_users_file and len(names) > 1 and not settings.dashboard_cookie_domain:
        log.warning(
            "browsers keep the dashboard's session from Dagster: the host names differ, set DASHBOARD_COOKIE_DOMAIN",
            dashboard_url=settings.dashboard_url,
            dagster_url=settings.dagster_url,
        )
