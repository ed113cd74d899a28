"""Whether anybody still wants a run: by its status in Dagster's storage, which every way of stopping it changes."""

import dagster as dg

STOPPED = frozenset({dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE})


def run_is_wanted(instance: dg.DagsterInstance, run_id: str) -> bool:
    """False: somebody terminated the run, monitoring gave it up, or it was deleted.

    A storage that does not answer is an error and no answer: whoever asks must not go on without one.
    """
    run = instance.get_run_by_id(run_id)
    return run is not None and run.status not in STOPPED
