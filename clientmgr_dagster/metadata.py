"""How the result of a run is shown in Dagster: tables, charts, one summary a run, a few numbers per tenant.

The numbers of single tenants are kept in tables of ours. Dagster gets a few of them per partition, and one summary a
run: 500 copies of a table with 500 rows would be most of its event log. A partition carries its own numbers and no
others: what is yielded or returned stands for every partition of the run, so no asset per tenant does that.

Nothing here names a contact or a device: Dagster keeps its event log after they are deleted.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import dagster as dg

from clientmgr.base.customer_ids import CustomerId
from clientmgr_dagster.materialisations import OwnNumbers, materialise

ROWS_SHOWN = 100
BAR = 24

Shown = dg.MetadataValue | int | float | str | bool
Numbers = Iterable[tuple[CustomerId, OwnNumbers]]


def table(rows: Sequence[Mapping[str, object]]) -> dg.MetadataValue:
    """The first rows as a table of the UI."""
    records = [dg.TableRecord({name: _shown(value) for name, value in row.items()}) for row in rows[:ROWS_SHOWN]]
    return dg.MetadataValue.table(records or [dg.TableRecord({"": "nothing"})])


def tenant_table(values: Mapping[CustomerId, object], column: str) -> dg.MetadataValue:
    """A row for each tenant with its value."""
    return table([{"customer": str(customer), column: value} for customer, value in values.items()])


def failure_table(failures: Mapping[CustomerId, str]) -> dg.MetadataValue:
    return tenant_table(failures, "why")


def chart(values: Mapping[CustomerId, int], *, unit: str) -> dg.MetadataValue:
    """The largest values as bars, in Markdown. Tenants with 0 have none."""
    largest = sorted(((name, value) for name, value in values.items() if value), key=lambda item: -item[1])[:20]
    most = max((value for _, value in largest), default=0) or 1
    lines = [f"| {name} | `{'█' * max(1, round(BAR * value / most))}` | {value:,} |" for name, value in largest]
    return dg.MetadataValue.md("\n".join([f"| tenant | {unit} | |", "|---|---|---|", *lines]))


def no_tenant_has(
    spec: dg.AssetCheckSpec, counts: Mapping[CustomerId, int], unit: str, *, of: Collection[CustomerId]
) -> dg.AssetCheckResult:
    """A check that passes if no tenant has any. `of`: the run's tenants. Others are shown too, and stop nothing."""
    return dg.AssetCheckResult(
        passed=not counts,
        severity=dg.AssetCheckSeverity.WARN if counts.keys().isdisjoint(of) else dg.AssetCheckSeverity.ERROR,
        asset_key=spec.asset_key,
        check_name=spec.name,
        metadata={unit: sum(counts.values()), "tenants": tenant_table(counts, unit)},
    )


def log_summary(
    context: dg.AssetExecutionContext, asset_key: str, counts: Mapping[CustomerId, int], *, unit: str, **more: Shown
) -> None:
    """One summary for the run, as an observation: in the materialisations it would be there once for each tenant."""
    metadata = {unit: sum(counts.values()), "by_tenant": chart(counts, unit=unit), **more}
    context.log_event(dg.AssetObservation(asset_key, metadata=metadata))


def log_partitions(
    context: dg.AssetExecutionContext, asset_key: str, numbers: Numbers, *, work: Collection[str] = ()
) -> None:
    """Record that these tenants' partitions, and no others of the run, are materialised; see `materialise`.

    `work` names the numbers that count what this run did: where one is not 0, the tenant changed.
    Nothing is yielded, so steps and checks of their own that depend on the asset are skipped: make them part of it.
    """
    materialise(context, dg.AssetKey(asset_key), dict(numbers), work=work)


def _shown(value: object) -> str | int | float | bool:
    if isinstance(value, (str, int, float, bool)):
        return value
    return "" if value is None else str(value)
