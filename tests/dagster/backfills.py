"""Our code location behind our door, and backfills on it: launched by GraphQL, planned by the daemon's loop."""

import contextlib
import json
import logging
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest
from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView
from dagster._core.definitions.temporal_context import TemporalContext
from dagster._core.execution.asset_backfill import execute_asset_backfill_iteration_inner
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.backfill import execute_backfill_iteration

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings, load_settings
from clientmgr.contracts import daemons
from clientmgr.local.processes.programs import dagster_environment
from clientmgr_dagster.partitions import PARTITIONS, RANGE_END, RANGE_START
from clientmgr_dashboard.dagster_ui.application import Workspace, prepare_instance
from tests.dagster.doors import ask, data_of, served
from tests.keys import TEST_KEY
from tests.process_table import mentioning, wait_until_gone, with_descendants

LAUNCH = """
mutation($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}
"""


@dataclass(frozen=True)
class House:
    """Our code location behind our door, on PostgreSQL storage. No daemon: the tests do what it does."""

    settings: Settings
    database: Database
    instance: dg.DagsterInstance
    workspace: Workspace
    address: str

    def launch(self, assets: Collection[str], partitions: Sequence[str] = (), **more: object) -> dict[str, Any]:
        params = {"assetSelection": [{"path": name.split("/")} for name in assets], "tags": [], **more}
        if not more:
            params["partitionNames"] = list(partitions)
        with httpx.Client(base_url=self.address, timeout=60) as client:
            answer: dict[str, Any] = data_of(ask(client, LAUNCH, {"params": params}))["launchPartitionBackfill"]
        return answer

    def launched(self, assets: Collection[str], partitions: Sequence[str] = (), **more: object) -> str:
        answer = self.launch(assets, partitions, **more)
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def backfill(self, backfill_id: str) -> PartitionBackfill:
        found = self.instance.get_backfill(backfill_id)
        assert found is not None
        return found

    def targets(self, backfill_id: str) -> dict[str, set[str]]:
        """By asset its partitions; none of an asset that has no partitions."""
        data = self.backfill(backfill_id).asset_backfill_data
        assert data is not None
        subset = data.target_subset
        partitioned = subset.partitions_subsets_by_asset_key.items()
        return {key.to_user_string(): set() for key in subset.non_partitioned_asset_keys} | {
            key.to_user_string(): set(keys.get_partition_keys()) for key, keys in partitioned
        }

    def iterate(self) -> None:
        """What the daemon does every few seconds."""
        for error in execute_backfill_iteration(self.workspace, logging.getLogger("test")):
            assert error is None, error

    def runs_of(self, backfill_id: str) -> list[dg.DagsterRun]:
        return list(self.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill_id})))

    def planned(self, backfill_id: str) -> list[dg.RunRequest]:
        """The runs that the daemon's next iteration would ask for. It computes them; it does not submit them."""
        backfill = self.backfill(backfill_id)
        graph = self.workspace.create_request_context().asset_graph
        moment = TemporalContext(effective_dt=datetime.now(UTC), last_event_id=None)
        found = execute_asset_backfill_iteration_inner(
            backfill_id=backfill_id,
            asset_backfill_data=backfill.get_asset_backfill_data(graph),
            asset_graph_view=AssetGraphView(temporal_context=moment, instance=self.instance, asset_graph=graph),
            backfill_start_timestamp=backfill.backfill_timestamp,
            logger=logging.getLogger("test"),
            run_config=None,
        )
        return list(found.run_requests)

    def partitions_of(self, request: dg.RunRequest) -> list[str]:
        keys = list(self.instance.get_dynamic_partitions(PARTITIONS))
        first = request.tags.get(RANGE_START) or str(request.partition_key)
        last = request.tags.get(RANGE_END) or first
        return keys[keys.index(first) : keys.index(last) + 1]

    def requested(self, backfill_id: str) -> dict[str, list[str]]:
        """By asset the partitions that runs are planned for, in the order of the tenants."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for request in self.planned(backfill_id):
            for asset in request.asset_selection or ():
                found[asset.to_user_string()] += self.partitions_of(request)
        return {asset: sorted(partitions, key=int) for asset, partitions in found.items()}

    def cancel(self, backfill_id: str) -> None:
        self.instance.update_backfill(self.backfill(backfill_id)._replace(status=BulkActionStatus.CANCELED))


@contextmanager
def opened_house(database: Database, folder: Path, logins: Mapping[str, str]) -> Iterator[House]:
    settings = load_settings(
        database_url=database.url, data_dir=folder, audit_hash_key=TEST_KEY, dagster_port=0, dashboard_port=0, **logins
    )
    # As Dagster loads it by itself, whatever the installation's own workspace.yaml says.
    location = {"module_name": "clientmgr_dagster.definitions", "location_name": "client_manager"}
    workspace_file = folder / "workspace.yaml"
    workspace_file.write_text(json.dumps({"load_from": [{"python_module": location}]}))
    environment = {**os.environ, **settings.environment()}
    with ExitStack() as opened:
        opened.callback(_end_code_servers)
        patch = opened.enter_context(pytest.MonkeyPatch.context())
        for name, value in dagster_environment(daemons.DAGSTER[0], settings, environment).items():
            patch.setenv(name, value)
        instance = opened.enter_context(dg.DagsterInstance.get())
        workspace = opened.enter_context(Workspace(instance, WorkspaceFileTarget([str(workspace_file)])))
        prepare_instance(instance)
        address = opened.enter_context(served(settings, workspace))
        yield House(settings, database, instance, workspace, address)


def _end_code_servers() -> None:
    """One that has launched a run does not end when it is told to: it asks the run's storage for ever."""
    ours = mentioning("clientmgr_dagster.definitions", among=with_descendants(os.getpid()))
    victims = {victim for server in ours for victim in with_descendants(server.pid)}
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
    wait_until_gone(victims)
