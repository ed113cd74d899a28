"""How failures and stops reach Dagster: a run names the tenants that failed, and a stopped run stays stopped.

Which errors a step is tried again after is the retry policy's rule (`policies.RetryWhereItHelps`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError  # what a step raises that is terminated

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.stopping import StillWanted, StoppedError
from clientmgr_dagster.chunks import still_active
from clientmgr_dagster.materialisations import mark_failed
from clientmgr_dagster.metadata import failure_table
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.runs.wanted import asking_whether_wanted


@contextmanager
def stoppable(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> Iterator[StillWanted]:
    """For work that destroys: yields what it asks before each batch. Work that stopped is an interrupted step."""
    with asking_whether_wanted(context.instance, context.run.run_id) as still_wanted:
        try:
            yield still_wanted
        except StoppedError as stop:
            context.log.warning(str(stop))
            raise DagsterExecutionInterruptedError(str(stop)) from stop


@contextmanager
def reporting_even_if_it_fails(context: dg.AssetExecutionContext, report: Callable[[], None]) -> Iterator[None]:
    """For work that is done in parts: what was done is reported, also when an error or an interrupt ends the rest.

    A report that fails does not take the place of what ended the work: an interrupt would no longer be final.
    """
    try:
        yield
    except BaseException:
        try:
            report()
        except Exception as error:  # noqa: BLE001  # Dagster's storage may be what ended the work
            context.log.warning(f"what was done is not reported: {type(error).__name__}")
        raise
    report()


def fail_if_tenants_failed(
    tenants: TenantsResource,
    customers: Sequence[CustomerId],
    failures: Mapping[CustomerId, str],
    *,
    by_asset: Mapping[str, Collection[CustomerId]] | None = None,
) -> None:
    """Fail the run with a table of the tenants that failed. Call it last: the others are done and reported by then.

    Their partitions are shown as failed: of all the run's assets, or of each those that `by_asset` says.
    """
    # A tenant that is deleted during the run has no table any more. Nobody has to look at that.
    active = still_active(tenants, list(failures)) if failures else set()
    to_report = {customer: why for customer, why in failures.items() if customer in active}
    if to_report:
        context = dg.AssetExecutionContext.get()
        for key in context.selected_asset_keys:
            failed = to_report if by_asset is None else by_asset.get(key.to_user_string(), ())
            mark_failed(context, key, [customer for customer in failed if customer in to_report])
        raise dg.Failure(
            f"{len(to_report)} of {len(customers)} tenants need somebody to look at them",
            metadata={"tenants": failure_table(to_report)},
            # Whatever another attempt can mend has had its attempts.
            allow_retries=False,
        )
