"""Whether anybody still wants a run: by its status in Dagster's storage, which every way of stopping it changes."""

import dagster as dg

STOPPED = frozenset({dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE})


def run_is_wanted(instance: dg.DagsterInstance, run_id: str) -> bool:
    """False: somebody terminated the run, monitoring gave it up, or it was deleted.

    A storage that does not answer is an error and no answer: whoever asks must not go on without one.
    """
    # One query. `get_run_by_id` would ask PostgreSQL for the table's columns first, each time.
    runs = instance.get_runs(dg.RunsFilter(run_ids=[run_id]), limit=1)
    return bool(runs) and runs[0].status not in STOPPED
