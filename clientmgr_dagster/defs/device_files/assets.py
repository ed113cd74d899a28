"""`device_files`: imports the files of each customer's folder, in a bucket or on this machine."""

from collections.abc import Iterator

import dagster as dg
import psycopg
from pydantic import Field

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import ClientManagerError, InvalidInputError, is_transient
from clientmgr.base.stopping import StillWanted, StoppedError
from clientmgr.devices.imports.folder_import import FolderImport
from clientmgr.devices.imports.folders import CUSTOMER, open_folder
from clientmgr_dagster.catalogue import computed_by, tenants_table
from clientmgr_dagster.chunks import active_customers_of
from clientmgr_dagster.failing import fail_if_tenants_failed, reporting_even_if_it_fails, stoppable
from clientmgr_dagster.materialisations import OwnNumbers
from clientmgr_dagster.metadata import failure_table, log_partitions, log_summary, table
from clientmgr_dagster.policies import PER_TENANT
from clientmgr_dagster.resources import TenantsResource

NAME = "device_files"
ACTOR = "dagster:device_files"
ROWS_BETWEEN_LINES = 100_000


class ImportConfig(dg.Config):
    """What a run says of the files, as `clientmgr devices import` takes it.

    Where they are is for the installation to say: otherwise who launches a run could read any file, and ask any host.
    """

    application: str | None = Field(None, description="Of which application, where no column says so.")
    mapping: dict[str, str] = Field({}, description="Column: field; an empty field leaves the column out.")
    delimiter: str = Field(",", min_length=1, max_length=1)
    dry_run: bool = Field(False, description="Check every row and report; write nothing.")
    restart: bool = Field(False, description="Import every file anew, also those that were imported as they are.")


@dg.asset(
    **PER_TENANT,
    name=NAME,
    deps=["tenant_schema"],
    group_name="imports",
    kinds={"postgres", "file"},
    metadata={
        "dagster/table_name": tenants_table("devices"),
        **computed_by("clientmgr.devices.imports.folder_import", "clientmgr.devices.imports.importer"),
    },
    output_required=False,
    description="The files in each customer's folder (DEVICE_IMPORT_FOLDER), imported by the rules of events. A file "
    "that has not changed since is passed over. Rows that can't be imported are in FILE.rejected.csv beside it.",
)
def device_files(
    context: dg.AssetExecutionContext, config: ImportConfig, tenants: TenantsResource
) -> Iterator[dg.AssetCheckResult]:
    """A customer whose files can't be read costs only itself. Without `dry_run`, each that was done is materialised."""
    place = tenants.settings.device_import_folder
    if not place:
        raise InvalidInputError("DEVICE_IMPORT_FOLDER", f"a folder like s3://bucket/devices/{CUSTOMER}", place)
    customers = active_customers_of(context, tenants)
    failures: dict[CustomerId, str] = {}
    done: dict[CustomerId, OwnNumbers] = {}
    files: list[dict[str, object]] = []

    def report() -> None:
        if not config.dry_run:
            log_partitions(context, NAME, done.items(), work=("files",))
        rows = {customer: int(numbers["imported"]) for customer, numbers in done.items()}
        log_summary(
            context, NAME, rows, unit="rows", dry_run=config.dry_run, files=table(files), failed=failure_table(failures)
        )

    with stoppable(context) as still_wanted, reporting_even_if_it_fails(context, report):
        for customer in customers:
            try:
                work = _work(context, config, tenants, customer, place=place, still_wanted=still_wanted)
                done[customer] = _import(context, work, files)
            except StoppedError:
                raise
            except (psycopg.Error, ClientManagerError) as error:
                if is_transient(error):
                    raise
                failures[customer] = str(error)
    fail_if_tenants_failed(tenants, customers, failures)
    yield from ()  # each tenant's partition is materialised already; to return would materialise all of the run's


def _import(
    context: dg.AssetExecutionContext, work: FolderImport, files: list[dict[str, object]]
) -> dict[str, int | str]:
    numbers: dict[str, int | str] = {"files": 0, "imported": 0, "rejected": 0, "unchanged": 0}
    for name, totals in work.run():
        if totals is None:
            numbers["unchanged"] = int(numbers["unchanged"]) + 1
            continue
        for number, count in (("files", 1), ("imported", totals.imported), ("rejected", totals.rejected)):
            numbers[number] = int(numbers[number]) + count
        because = ", ".join(f"{field} ({count})" for field, count in totals.reasons.items())
        found = {"imported": totals.imported, "rejected": totals.rejected, "because_of": because}
        files.append({"customer": str(work.customer_id), "file": name, "rows": totals.rows, **found})
        if totals.rejected:
            context.log.warning(f"{name} of customer {work.customer_id}: {totals.rejected} rows rejected: {because}")
    return numbers


def _work(
    context: dg.AssetExecutionContext,
    config: ImportConfig,
    tenants: TenantsResource,
    customer: CustomerId,
    *,
    place: str,
    still_wanted: StillWanted,
) -> FolderImport:
    def tell(name: str, rows: int) -> None:
        if rows and rows % ROWS_BETWEEN_LINES == 0:
            context.log.info(f"{name} of customer {customer}: {rows} rows are done")

    return FolderImport(
        tenants.settings,
        tenants.database,
        customer,
        open_folder(place, customer),
        ACTOR,
        application_code=config.application,
        mapped=config.mapping,
        delimiter=config.delimiter,
        dry_run=config.dry_run,
        restart=config.restart,
        still_wanted=still_wanted,
        on_progress=tell,
    )
