"""Dagster's web application as we serve it: its own, with our permissions and records inside and our guard around."""

from typing import Final

from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext, WorkspaceRequestContext
from dagster_webserver.webserver import DagsterWebserver
from graphene import Schema  # type: ignore[import-untyped]  # it ships no types
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from clientmgr.base.settings import Settings
from clientmgr_dashboard.access.authentication import Authenticator
from clientmgr_dashboard.access.guard import Guard
from clientmgr_dashboard.dagster_ui.door import DagsterDoor, SubscriptionsOnly
from clientmgr_dashboard.dagster_ui.launches import tag_launches
from clientmgr_dashboard.dagster_ui.mutations import (
    ChangesRecord,
    actor_of,
    may_change,
    record_mutations,
    visitor_of,
)

POLL_EVERY_MS: Final = 2000


class Workspace(WorkspaceProcessContext):
    """Dagster's, with permissions by who asks: its UI greys out what a viewer may not do."""

    def create_request_context(self, source: object | None = None) -> WorkspaceRequestContext:
        return WorkspaceRequestContext(
            instance=self._instance,
            current_workspace=self.get_current_workspace(),
            process_context=self,
            version=self.version,
            source=source,
            read_only=not may_change(visitor_of(source)),
        )


class RecordedWebserver(DagsterWebserver[Workspace, WorkspaceRequestContext]):
    """Dagster's, with an audit row for each change."""

    def __init__(self, workspace: Workspace, record: ChangesRecord) -> None:
        self._record = record
        super().__init__(workspace, live_data_poll_rate=POLL_EVERY_MS)

    def build_graphql_schema(self) -> Schema:
        schema = super().build_graphql_schema()
        record_mutations(schema.graphql_schema.mutation_type, self._record)
        return schema

    async def report_asset_materialization_endpoint(self, request: Request) -> JSONResponse:
        await self._record_report(request)
        return await super().report_asset_materialization_endpoint(request)

    async def report_asset_check_endpoint(self, request: Request) -> JSONResponse:
        await self._record_report(request)
        return await super().report_asset_check_endpoint(request)

    async def report_asset_observation_endpoint(self, request: Request) -> JSONResponse:
        await self._record_report(request)
        return await super().report_asset_observation_endpoint(request)

    async def _record_report(self, request: Request) -> None:
        visitor = visitor_of(request)
        if visitor is None or not may_change(visitor):
            raise PermissionError("the guard lets only operators in here")
        action = request.url.path.split("/")[1]
        details = {"asset": str(request.path_params.get("asset_key", ""))[:200].replace("\0", "")}
        await run_in_threadpool(self._record.append, actor_of(visitor), action, "intended", details)


def prepare_instance(instance: DagsterInstance) -> None:
    """Once in a process."""
    # As `dagster-webserver` does: statement_timeout in ms, the age in s at which connections are renewed, overflow.
    instance.optimize_for_webserver(15_000, 3600, 20)
    tag_launches(instance)


def dagster_application(
    settings: Settings, workspace: Workspace, authenticator: Authenticator, record: ChangesRecord, port: int
) -> ASGIApp:
    app = RecordedWebserver(workspace, record).create_asgi_app()
    return Guard(SubscriptionsOnly(app), door=DagsterDoor(settings, port), authenticator=authenticator)
