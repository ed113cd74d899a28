"""Dagster's UI as we serve it, for whoever is at this machine and for users, on a small workspace of its own."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from dagster import DagsterInstance, DagsterRun
from dagster._core.workspace.load_target import WorkspaceFileTarget

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.contracts import daemons
from clientmgr.local.embedded.server import free_port
from clientmgr.local.processes.programs import dagster_environment
from clientmgr_dashboard.access.authentication import COOKIE
from clientmgr_dashboard.dagster_ui.application import Workspace, prepare_instance
from clientmgr_dashboard.dagster_ui.server import serve_dagster_ui
from tests.dashboard.house import PASSWORDS, serving, sign_in, write_users
from tests.web_server import served_in_thread

CODE = """
import dagster as dg

@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["7", "8", "9"]))
def numbers():
    pass

@dg.op(config_schema={"customer_id": dg.Field(str, is_required=False), "token": dg.Field(str, is_required=False)})
def work():
    pass

@dg.job
def small_job():
    work()

@dg.sensor(job=small_job)
def small_sensor():
    return dg.SkipReason("nothing")

partitioned_job = dg.define_asset_job("partitioned_job", [numbers])
defs = dg.Definitions(assets=[numbers], jobs=[small_job, partitioned_job], sensors=[small_sensor])
"""
REPOSITORY = {"repositoryLocationName": "small", "repositoryName": "__repository__"}
LAUNCH = """
mutation($params: ExecutionParams!) {
  launchRun(executionParams: $params) { __typename ... on LaunchRunSuccess { run { runId } } ... on Error { message } }
}
"""
LAUNCH_INLINE = (
    'mutation { launchRun(executionParams: {selector: {repositoryLocationName: "small", repositoryName:'
    ' "__repository__", jobName: "small_job"}, runConfigData: {}}) { __typename } }'
)
VERSION = "{ version }"


def params(job: str = "small_job", config: object = None, tags: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "selector": {**REPOSITORY, "jobName": job},
        "runConfigData": config or {},
        "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in (tags or {}).items()]},
    }


@dataclass(frozen=True)
class Doors:
    """Two doors to one Dagster, and the dashboard where people sign in."""

    settings: Settings
    database: Database
    instance: DagsterInstance
    workspace: Workspace
    open_address: str
    guarded_address: str
    dashboard_address: str
    sessions: Mapping[str, str]

    def visit(self, name: str = "") -> httpx.Client:
        """A signed-in user, or nobody, at the guarded door."""
        cookies = {COOKIE: self.sessions[name]} if name else {}
        return httpx.Client(base_url=self.guarded_address, timeout=30, cookies=cookies)

    def local(self) -> httpx.Client:
        """Whoever is at this machine, at the open door."""
        return httpx.Client(base_url=self.open_address, timeout=30)

    def runs(self) -> list[DagsterRun]:
        """The newest first."""
        return list(self.instance.get_runs())

    def audited(self, action: str) -> list[tuple[str, str, dict[str, Any]]]:
        """(actor, outcome, details), the newest last."""
        with self.database.connect(Role.OWNER) as connection:
            found = connection.execute(
                "SELECT actor, outcome, details FROM clientmgr.audit_log WHERE action = %s ORDER BY seq", [action]
            ).fetchall()
        return [(actor, outcome, details) for actor, outcome, details in found]


def ask(client: httpx.Client, query: str, variables: object = None, **headers: str) -> httpx.Response:
    """As Dagster's page sends it."""
    return client.post("/graphql", json={"query": query, "variables": variables}, headers=headers)


def data_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert "errors" not in found, found
    data: dict[str, Any] = found["data"]
    return data


@contextmanager
def opened_doors(settings: Settings, folder: Path) -> Iterator[Doors]:
    database = Database.from_settings(settings)
    (folder / "small.py").write_text(CODE)
    workspace_file = folder / "workspace.yaml"
    location = {"relative_path": "small.py", "location_name": "small"}
    workspace_file.write_text(json.dumps({"load_from": [{"python_file": location}]}))
    # Each is told where the other is: people sign in at one and come back to the other.
    ports = {"dagster_port": free_port(), "dashboard_port": free_port()}
    guarded = settings.model_copy(update={"dashboard_users_file": str(write_users(folder)), **ports})
    with ExitStack() as opened:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in dagster_environment(daemons.DAGSTER[2], settings, dict(os.environ)).items():
                patch.setenv(name, value)
            instance = opened.enter_context(DagsterInstance.get())
            workspace = opened.enter_context(Workspace(instance, WorkspaceFileTarget([str(workspace_file)])))
            prepare_instance(instance)
        open_address = opened.enter_context(served(settings, workspace))
        guarded_address = opened.enter_context(served(guarded, workspace))
        dashboard_address = opened.enter_context(serving(guarded))
        sessions = {name: sign_in(dashboard_address, name) for name in PASSWORDS}
        yield Doors(guarded, database, instance, workspace, open_address, guarded_address, dashboard_address, sessions)


@contextmanager
def served(settings: Settings, workspace: Workspace) -> Iterator[str]:
    """On a free port, in a thread; gone at the end. Gives its address."""

    def serve(settings: Settings, stop: asyncio.Event, on_ready: Callable[[int], None]) -> Awaitable[None]:
        return serve_dagster_ui(settings, workspace, stop, on_ready)

    with served_in_thread(serve, settings) as address:
        yield address
