"""Prunes our part of Dagster's event log, which otherwise grows for ever: some dozen events for each tenant and run.

Other code locations may share the instance and its log. What is theirs is never touched.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
from dagster import AssetCheckKey, AssetKey, DagsterRun, RepositoryDefinition

from clientmgr.base.sqlfiles import named_queries

QUERIES = named_queries("dagster/queries/prune.sql")

PAGE = 5000


@dataclass(frozen=True, slots=True)
class Ours:
    """What is ours in an instance: the runs of our code location, our assets and our checks."""

    repository: str
    """As Dagster labels runs: `__repository__@client_manager`, or whatever the location is called in this instance."""
    asset_keys: Sequence[AssetKey]
    checks: Sequence[AssetCheckKey]

    @classmethod
    def of(cls, repository: RepositoryDefinition, run: DagsterRun) -> "Ours":
        """As the run says that does the pruning. Started in a shell, it has no location: no run is ours then."""
        graph = repository.asset_graph
        origin = run.remote_job_origin
        label = origin.repository_origin.get_label() if origin else ""
        return cls(label, sorted(graph.get_all_asset_keys()), sorted(graph.asset_check_keys))

    def parameters(self) -> dict[str, object]:
        """As the queries name them. Dagster stores keys as JSON."""
        return {
            "repository": self.repository,
            "asset_keys": [key.to_string() for key in self.asset_keys],
            "check_assets": [check.asset_key.to_string() for check in self.checks],
            "check_names": [check.name for check in self.checks],
        }


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one pruning did."""

    events: int
    check_results: int
    bytes_left: int


def prune(url: str, ours: Ours, *, keep_days: float, page: int = PAGE) -> Pruned:
    """Delete older events in small transactions. Events that define an asset's current state stay. Safe at any time."""
    # Dagster stores UTC without a time zone.
    before = (datetime.now(UTC) - timedelta(days=keep_days)).replace(tzinfo=None)
    with psycopg.connect(url, autocommit=True, application_name="prune_event_log") as connection:
        check_results = connection.execute(QUERIES["prune_checks"], ours.parameters() | {"before": before}).rowcount
        events = after_id = 0
        while True:
            last_id, oldest = connection.execute(QUERIES["page"], {"after_id": after_id, "most": page}).fetchall()[0]
            if last_id is None or oldest >= before:
                break
            bounds = ours.parameters() | {"after_id": after_id, "last_id": last_id, "before": before}
            events += connection.execute(QUERIES["prune_page"], bounds).fetchall()[0][0]
            after_id = last_id
        ((bytes_left,),) = connection.execute(QUERIES["size"]).fetchall()
    return Pruned(events, check_results, bytes_left)
