"""Starts runs in the Dagster that `up` runs and asks what became of them, by its GraphQL: Dagster is not imported."""

import json
import urllib.request
from collections.abc import Mapping
from functools import partial
from typing import Any

from clientmgr.base.errors import ClientManagerError
from clientmgr.base.settings import Settings
from clientmgr.operations.dagster_addresses import trusting_own_certificate, ui_url
from clientmgr_dashboard.access.authentication import sessions_of

LOCATION, REPOSITORY = "client_manager", "__repository__"
EVERY_ASSET = "__ASSET_JOB"
"""Dagster's own job that holds all assets: what is materialised without a job of ours is a part of it."""
ANSWER_WITHIN_S = 30.0
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
ENDED = frozenset({"SUCCESS", "FAILURE", "CANCELED"})

_LAUNCH = """
mutation($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on Error { message }
  }
}
"""
_STATUS = "query($id: ID!) { runOrError(runId: $id) { __typename ... on Run { status } ... on Error { message } } }"
_PARTITIONS = """
query($path: [String!]!) { assetNodeOrError(assetKey: {path: $path}) { __typename ... on AssetNode { partitionKeys } } }
"""


class DagsterRuns:
    """A webserver's runs. Raises `OSError` where it does not answer."""

    def __init__(self, settings: Settings, process: str) -> None:
        """`process`: what the audit log calls the caller, after `dagster:process:`."""
        self._url = f"{ui_url(settings)}/graphql"
        self._certificate = trusting_own_certificate(settings)
        self._token = partial(sessions_of(settings).process_token, process)

    def partitions(self, asset: str) -> list[str]:
        """The asset's partition keys, in the order they were added; none while the asset is not loaded yet."""
        node = self._ask(_PARTITIONS, {"path": [asset]})["assetNodeOrError"]
        return list(node.get("partitionKeys", ()))

    def launch(self, job: str, tags: Mapping[str, str]) -> str:
        """Queue a run of a job. Returns the run's id."""
        return self._launch({"jobName": job}, tags, job)

    def materialise(self, asset: str, partition: str) -> str:
        """Queue a run over one partition of an asset, as the UI's button does. Returns the run's id."""
        selector = {"jobName": EVERY_ASSET, "assetSelection": [{"path": [asset]}]}
        return self._launch(selector, {"dagster/partition": partition}, asset)

    def _launch(self, selector: Mapping[str, Any], tags: Mapping[str, str], what: str) -> str:
        params = {
            "selector": {"repositoryLocationName": LOCATION, "repositoryName": REPOSITORY, **selector},
            "runConfigData": {},
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
        }
        answer = self._ask(_LAUNCH, {"params": params})["launchRun"]
        if "run" not in answer:
            raise ClientManagerError(f"Dagster does not start {what}: {answer.get('message', answer['__typename'])}")
        return str(answer["run"]["runId"])

    def status(self, run_id: str) -> str:
        """As Dagster says it: QUEUED, STARTED, SUCCESS, …"""
        answer = self._ask(_STATUS, {"id": run_id})["runOrError"]
        if "status" not in answer:
            raise ClientManagerError(f"Dagster does not know run {run_id}: {answer.get('message', '')}")
        return str(answer["status"])

    def _ask(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(  # noqa: S310  # our own server
            self._url, body, {"Content-Type": "application/json", "Authorization": f"Bearer {self._token()}"}
        )
        with urllib.request.urlopen(  # noqa: S310  # our own server
            request, timeout=ANSWER_WITHIN_S, context=self._certificate
        ) as response:
            answer = json.load(response)
        if answer.get("errors"):
            raise ClientManagerError(f"Dagster's GraphQL: {answer['errors'][0]['message']}")
        data: dict[str, Any] = answer["data"]
        return data
