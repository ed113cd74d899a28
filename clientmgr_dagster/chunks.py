"""Runs over chunks of tenants: how large, how they are asked for, and how their result is shown.

Numbers of single tenants are kept in tables of ours. Dagster gets a few of them per partition, and one summary a run:
500 copies of a table with 500 rows would be most of its event log.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import dagster as dg

from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.database import Role
from clientmgr.base.portions import portions
from clientmgr.tenants.registry import TenantStatus, find_tenants
from clientmgr_dagster.partitions import partition_range
from clientmgr_dagster.resources import TenantsResource

TENANTS_PER_RUN = 500
"""One Spark job each. A single run over thousands of partitions hits the start timeout."""
ROWS_SHOWN = 100
BAR = 24


def chunk_policy() -> dg.BackfillPolicy:
    return dg.BackfillPolicy.multi_run(max_partitions_per_run=TENANTS_PER_RUN)


def active_customers_of(context: dg.AssetExecutionContext, tenants: TenantsResource) -> list[CustomerId]:
    """The run's tenants; who was deleted since it was asked for is passed over."""
    wanted = [parse_customer_id(key, field="partition key") for key in context.partition_keys]
    active = still_active(tenants, wanted)
    if passed_over := [str(customer) for customer in wanted if customer not in active]:
        context.log.warning(f"not active, and passed over: {', '.join(passed_over[:20])} ({len(passed_over)} in all)")
    return [customer for customer in wanted if customer in active]


def still_active(tenants: TenantsResource, customers: Sequence[CustomerId]) -> set[CustomerId]:
    with tenants.database.connect(Role.READER) as connection:
        found = find_tenants(connection, customers)
    return {tenant.customer_id for tenant in found if tenant.status == TenantStatus.ACTIVE}


def requests_for_all(keys: Sequence[str], *, name: str, moment: str) -> Iterator[dg.RunRequest]:
    """A run for each chunk of neighbours: ranges are positional, scattered keys would be a run each."""
    for chunk in portions(keys, TENANTS_PER_RUN):
        first, last = chunk[0], chunk[-1]
        run_key = f"{name}:{moment}:{first}:{last}"
        if first == last:
            yield dg.RunRequest(run_key=run_key, partition_key=first)
        else:
            yield dg.RunRequest(run_key=run_key, tags=partition_range([first, last]))


def table(rows: Sequence[Mapping[str, object]]) -> dg.MetadataValue:
    """The first rows as a table of the UI."""
    records = [dg.TableRecord({name: _shown(value) for name, value in row.items()}) for row in rows[:ROWS_SHOWN]]
    return dg.MetadataValue.table(records or [dg.TableRecord({"": "nothing"})])


def chart(values: Mapping[CustomerId, int], *, unit: str) -> dg.MetadataValue:
    """The largest values as bars, in Markdown."""
    largest = sorted(values.items(), key=lambda item: -item[1])[:20]
    most = max((value for _, value in largest), default=0) or 1
    lines = [
        f"| {name} | `{'█' * max(1 if value else 0, round(BAR * value / most))}` | {value:,} |"
        for name, value in largest
    ]
    return dg.MetadataValue.md("\n".join([f"| tenant | {unit} | |", "|---|---|---|", *lines]))


def failure_table(failures: Mapping[CustomerId, str]) -> dg.MetadataValue:
    return table([{"customer": str(customer), "why": error} for customer, error in failures.items()])


def _shown(value: object) -> str | int | float | bool:
    if isinstance(value, (str, int, float, bool)):
        return value
    return "" if value is None else str(value)


def log_partitions(
    context: dg.AssetExecutionContext,
    asset_key: str,
    numbers: Iterable[tuple[CustomerId, Mapping[str, int | str]]],
) -> None:
    """Say that these tenants' partitions, and no others of the run, are materialised."""
    for customer_id, metadata in numbers:
        context.log_event(dg.AssetMaterialization(asset_key, partition=str(customer_id), metadata=dict(metadata)))
