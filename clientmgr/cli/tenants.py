"""`clientmgr tenants …`: who is registered, and the life of a tenant's schema."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId, parse_customer_id, schema_name
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings
from clientmgr.cli import placement
from clientmgr.cli.output import (
    JsonOption,
    YesOption,
    actor,
    console,
    errors,
    open_database,
    print_json,
    progress_bar,
    show_record,
    show_rows,
    unreadable,
)
from clientmgr.cli.proof_output import (
    ForceOption,
    OutputOption,
    SearchOption,
    chosen_file,
    chosen_texts,
    hand_out,
    open_stores,
    stopped_by_signals,
    watched,
)
from clientmgr.tenants.names import checked_name, names_of, rename_tenant
from clientmgr.tenants.registry import TenantStatus, count_by_status, find_tenant, list_tenants
from clientmgr.tenants.results import Change, TenantResult

# Slow to import, and those who only look need none of it.
if TYPE_CHECKING:
    from clientmgr.tenants.schema_manager import TenantSchemaManager

app = typer.Typer(
    help="Tenants: list, activate, rename, migrate, delete, reconcile, prove, place.", no_args_is_help=True
)
placement.register(app)

# `-1` is a customer id that we refuse, not an option that click does not know.
NEGATIVE_NUMBERS_ARE_ARGUMENTS = {"ignore_unknown_options": True}

CustomerIds = Annotated[list[str] | None, typer.Argument(metavar="[CUSTOMER_ID]...", show_default=False)]
CustomerOption = Annotated[str, typer.Option("--customer", "-c", help="The customer's id.", show_default=False)]
FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="Read customer ids from a file, one a line; - is standard input.")
]


@app.command("list")
def list_command(
    status: Annotated[TenantStatus | None, typer.Option(help="Only tenants in this status.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the registered tenants."""
    database, _ = open_database()
    with database.connect(Role.READER) as connection:
        names = names_of(connection)
        rows = (
            {
                "customer_id": tenant.customer_id,
                "name": names.get(tenant.customer_id),
                "status": tenant.status,
                "schema_version": tenant.schema_version,
                "activated_at": tenant.activated_at,
                "deleted_at": tenant.deleted_at,
            }
            for tenant in list_tenants(connection, status)
        )
        columns = ["customer_id", "name", "status", "schema_version", "activated_at", "deleted_at"]
        show_rows(rows, columns, as_json=as_json, empty="no tenants yet: clientmgr tenants activate CUSTOMER_ID")


@app.command(context_settings=NEGATIVE_NUMBERS_ARE_ARGUMENTS)
def activate(
    customer_ids: CustomerIds = None,
    file: FileOption = None,
    name: Annotated[str | None, typer.Option(help="What people call it. For a single customer.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Register customers and create their schemas. Activating an active customer changes nothing."""
    wanted = _customer_ids(customer_ids, file)
    if name is not None and (len(wanted) != 1 or not checked_name(name)):
        raise InvalidInputError("--name", "a name, and one customer whose it is", name)
    manager = _manager()
    with progress_bar("activating", len(wanted)) as progress:
        results = manager.activate(wanted, actor=actor(), on_result=lambda _: progress.advance(progress.task_ids[0]))
    if name is not None and all(result.change is not Change.FAILED for result in results):
        _rename(wanted[0], name)
    _report(results, as_json=as_json)


@app.command()
def rename(
    customer_id: Annotated[str, typer.Argument()],
    name: Annotated[str, typer.Argument(help="What people call it; empty: nothing any more.")],
) -> None:
    """Say what people call a customer: it is shown and searched for, and nothing is decided by it."""
    customer = parse_customer_id(customer_id)
    changed = _rename(customer, name)
    called = f"called {checked_name(name)}" if checked_name(name) else "without a name"
    errors.print(f"customer {customer} is {called}{'' if changed else ' already'}", highlight=False, markup=False)


@app.command(context_settings=NEGATIVE_NUMBERS_ARE_ARGUMENTS)
def migrate(customer_ids: CustomerIds = None, file: FileOption = None, as_json: JsonOption = False) -> None:
    """Apply pending migrations to the given tenants, or to all."""
    chosen = _customer_ids(customer_ids, file) if customer_ids or file else None
    manager = _manager()
    with progress_bar("migrating", None) as progress:
        results = manager.migrate(
            chosen,
            actor=actor(),
            on_start=lambda total: progress.update(progress.task_ids[0], total=total),
            on_result=lambda _: progress.advance(progress.task_ids[0]),
        )
    _report(results, as_json=as_json)


@app.command(context_settings=NEGATIVE_NUMBERS_ARE_ARGUMENTS)
def delete(customer_id: Annotated[str, typer.Argument()], yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Delete a customer's account: drop its schema with all devices, and record it in the audit log."""
    customer = parse_customer_id(customer_id)
    database, settings = open_database()
    manager = _manager_of(database, settings)
    with database.connect(Role.READER) as connection:
        known = find_tenant(connection, customer) is not None
    if not yes:
        typer.confirm(f"Drop {schema_name(customer)} with all its devices?", abort=True, err=True)
    result = manager.delete(customer, actor=actor())
    _report([result], as_json=as_json)
    if result.change is Change.ALREADY_ABSENT and not known:
        told = f"customer {customer} was never activated: nothing was there to delete. The audit log has your request"
        errors.print(told, highlight=False)


@app.command(context_settings=NEGATIVE_NUMBERS_ARE_ARGUMENTS)
def status(
    customer_id: Annotated[str | None, typer.Argument(show_default=False)] = None, as_json: JsonOption = False
) -> None:
    """How many tenants are in which status and behind on migrations; or one tenant in detail."""
    customer = None if customer_id is None else parse_customer_id(customer_id)
    database, settings = open_database()
    manager = _manager_of(database, settings)
    with database.connect(Role.READER) as connection:
        if customer is not None:
            tenant = find_tenant(connection, customer)
            if tenant is None:
                console.print(f"customer {customer} was never activated")
                raise typer.Exit(1)
            details: dict[str, Any] = {
                "customer_id": customer,
                "name": names_of(connection, [customer]).get(customer),
                "status": tenant.status,
                "schema": schema_name(customer),
                "schema_version": tenant.schema_version,
                "newest_version": manager.head_version,
                "activated_at": tenant.activated_at,
                "deleted_at": tenant.deleted_at,
            }
        else:
            counts = count_by_status(connection)
            details = {**{str(status): count for status, count in counts.items()}, "behind": manager.count_behind()}
    if as_json:
        print_json(details)
    else:
        show_record(details)


@app.command()
def reconcile(
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only tell what would be repaired.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Repair what disagrees: tenants left half-way, schemas of nobody, rows of deleted customers. So does Dagster."""
    from clientmgr.tenants.reconciliation import Reconciler

    database, settings = open_database()
    reconciler = Reconciler(database, settings, actor=actor())
    drifts = reconciler.find()
    repairs = [] if dry_run else reconciler.repair(drifts)
    outcomes = {repair.drift: repair.outcome for repair in repairs}
    rows = [
        {
            "customer_id": drift.customer_id,
            "found": drift.kind,
            "detail": drift.detail,
            "outcome": outcomes.get(drift),
        }
        for drift in drifts
    ]
    show_rows(rows, ["customer_id", "found", "detail", "outcome"], as_json=as_json, empty="nothing disagrees")
    if any(not repair.repaired for repair in repairs) or (dry_run and drifts):
        raise typer.Exit(1)


@app.command()
def prove(
    customer: CustomerOption,
    *,
    search: SearchOption = None,
    output: OutputOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Look into every place for what is left of a customer's account. Exit code 0: nothing; 1: something.

    The report is signed with the audit key; `clientmgr audit check-proof FILE` checks it later.
    """
    from clientmgr.erasure.proof import prove_account

    customer_id = parse_customer_id(customer, field="--customer")
    stores = open_stores()
    file = chosen_file(output, force=force)
    with stopped_by_signals():
        report = prove_account(stores, customer_id, actor=actor(), texts=chosen_texts(search), watch=watched())
    hand_out(report, file, as_json=as_json or str(output) == "-")


def _rename(customer_id: CustomerId, name: str) -> bool:
    database, settings = open_database()
    with database.connect(Role.WRITER) as connection:
        return rename_tenant(connection, AuditLogger.from_settings(settings), customer_id, name, actor=actor())


def _manager() -> "TenantSchemaManager":
    return _manager_of(*open_database())


def _manager_of(database: Database, settings: Settings) -> "TenantSchemaManager":
    from clientmgr.tenants.schema_manager import TenantSchemaManager

    return TenantSchemaManager(database, settings)


def _customer_ids(arguments: list[str] | None, file: Path | None) -> list[CustomerId]:
    texts = list(arguments or [])
    if file is not None:
        texts += _lines(file)
    if not texts:
        raise InvalidInputError("CUSTOMER_ID", "at least one customer id", "")
    # All of them are checked before anything is done for the first.
    return [parse_customer_id(text, field="CUSTOMER_ID") for text in texts]


def _lines(file: Path) -> list[str]:
    """The lines that are not blank, each as it is: ` 1` is no customer id here either."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable("--file", file, error) from None
    # Not splitlines(), for which a dozen other characters end a line.
    return [line for line in text.split("\n") if line.strip()]


def _report(results: list[TenantResult], *, as_json: bool) -> None:
    """One row each for a few tenants, counts for many, and always every failure with its reason."""
    failed = [result for result in results if result.change is Change.FAILED]
    if as_json or len(results) <= 20:
        rows = [
            {
                "customer_id": result.customer_id,
                "change": result.change.value,
                "schema_version": result.schema_version,
                "rows_deleted": result.rows_deleted,
                "error": result.error,
            }
            for result in results
        ]
        show_rows(
            rows,
            ["customer_id", "change", "schema_version", "rows_deleted", "error"],
            as_json=as_json,
            empty="nothing to do",
        )
    else:
        for change in Change:
            if count := sum(result.change is change for result in results):
                console.print(f"{count} {change.value}")
        for result in failed:
            console.print(f"customer {result.customer_id}: {result.error}", markup=False)
    if failed:
        raise typer.Exit(1)
