"""Who launched a run: a tag on every run and backfill that the webserver stores, whatever the request claims.

All mutations that launch something end in the same calls of Dagster's run storage, however they were written. So the
tag is set there, and not where each mutation's arguments are read.
"""

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

from dagster import DagsterInstance, DagsterRun
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from clientmgr.contracts.run_tags import ACTOR_TAGS, LAUNCHED_BY

NOBODY = "dagster:unknown"
_launching: ContextVar[str] = ContextVar("launching", default=NOBODY)


@contextlib.contextmanager
def launching_as(actor: str) -> Iterator[None]:
    """What is stored inside is launched by `actor`."""
    before = _launching.set(actor)
    try:
        yield
    finally:
        _launching.reset(before)


def tag_launches(instance: DagsterInstance) -> None:
    """From now on this process' runs and backfills say who launched them."""
    storage = instance.run_storage
    add_run, add_backfill, update_backfill = storage.add_run, storage.add_backfill, storage.update_backfill

    def add_tagged_run(dagster_run: DagsterRun) -> DagsterRun:
        return add_run(dagster_run.with_tags(_tagged(dagster_run.tags)))

    def add_tagged_backfill(partition_backfill: PartitionBackfill) -> None:
        add_backfill(partition_backfill._replace(tags=_tagged(partition_backfill.tags)))

    def update_tagged_backfill(partition_backfill: PartitionBackfill) -> None:
        if partition_backfill.status is BulkActionStatus.REQUESTED:
            # Somebody resumes it: what is launched from here on is theirs.
            partition_backfill = partition_backfill._replace(tags=_tagged(partition_backfill.tags))
        update_backfill(partition_backfill)

    for name, replacement in (
        ("add_run", add_tagged_run),
        ("add_backfill", add_tagged_backfill),
        ("update_backfill", update_tagged_backfill),
    ):
        setattr(storage, name, replacement)


def _tagged(tags: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in tags.items() if key not in ACTOR_TAGS}
    return {**kept, LAUNCHED_BY: _launching.get()}
