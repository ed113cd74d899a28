"""Prunes Dagster's event log, which otherwise grows for ever: some dozen events for each tenant and run."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg

from clientmgr.base.sqlfiles import named_queries

QUERIES = named_queries("dagster/queries/prune.sql")

PAGE = 5000


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one pruning did."""

    events: int
    check_results: int
    bytes_left: int


def prune(url: str, *, keep_days: float, page: int = PAGE) -> Pruned:
    """Delete older events in small transactions. Events that define an asset's current state stay. Safe at any time."""
    # Dagster stores UTC without a time zone.
    before = (datetime.now(UTC) - timedelta(days=keep_days)).replace(tzinfo=None)
    with psycopg.connect(url, autocommit=True, application_name="prune_event_log") as connection:
        check_results = connection.execute(QUERIES["prune_checks"], {"before": before}).rowcount
        events = after_id = 0
        while True:
            last_id, oldest = connection.execute(QUERIES["page"], {"after_id": after_id, "most": page}).fetchall()[0]
            if last_id is None or oldest >= before:
                break
            bounds = {"after_id": after_id, "last_id": last_id, "before": before}
            events += connection.execute(QUERIES["prune_page"], bounds).fetchall()[0][0]
            after_id = last_id
        ((bytes_left,),) = connection.execute(QUERIES["size"]).fetchall()
    return Pruned(events, check_results, bytes_left)
