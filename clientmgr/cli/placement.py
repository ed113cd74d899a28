"""`clientmgr tenants place`: where tenants lie on a Citus cluster, and moving them to other nodes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings
from clientmgr.base.wording import plural, size, span
from clientmgr.cli.output import (
    JsonOption,
    YesOption,
    actor,
    console,
    errors,
    open_database,
    print_json,
    progress_bar,
    show_rows,
)
from clientmgr.cli.proof_output import stopped_by_signals
from clientmgr.tenants import placement, rebalancing
from clientmgr.tenants.names import names_of
from clientmgr.tenants.placement import Node, NodeLoad, Placement, Rebalance
from clientmgr.tenants.rebalancing import Measure

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from clientmgr.tenants.moves import Progress

SHOWN = 20


def register(app: typer.Typer) -> None:
    app.command()(place)


def place(
    customer_id: Annotated[str | None, typer.Argument(show_default=False)] = None,
    *,
    to: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Move the customer to this node.")] = None,
    rebalance: Annotated[bool, typer.Option("--rebalance", help="Even out all nodes, by Citus' own plan.")] = False,
    by: Annotated[Measure, typer.Option(help="With --rebalance: even out what they store, or how many.")] = "size",
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="With --rebalance: only show the plan.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End the rebalancing that is under way.")] = False,
    largest: Annotated[int, typer.Option(min=0, help="Show so many tenants, the largest first; 0: all.")] = SHOWN,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show where tenants lie on a Citus cluster; move one to another node, or even out all, while they are written to.

    Ctrl-C stops a move: the tenant stays where it was. It stops to follow a rebalancing, which goes on: see --stop.
    """
    asked = [name for name, given in (("--to", to is not None), ("--rebalance", rebalance), ("--stop", stop)) if given]
    if len(asked) > 1:
        raise InvalidInputError(asked[1], f"only one of {' and '.join(asked)}", "")
    if (to is None) != (customer_id is None):
        raise InvalidInputError("--to", "a customer and the node that it is to lie on", to or "")
    if dry_run and not rebalance:
        raise InvalidInputError("--dry-run", "--rebalance beside it", "")
    customer = None if customer_id is None else parse_customer_id(customer_id, field="CUSTOMER_ID")
    database, settings = open_database()
    with database.connect(Role.READER, autocommit=True) as connection:
        placement.require_cluster(connection, settings)
    if customer is not None and to is not None:
        _move(database, settings, customer, to, as_json=as_json)
    elif rebalance:
        _rebalance(database, settings, by, dry_run=dry_run, yes=yes, as_json=as_json)
    elif stop:
        _stop(database, settings, as_json=as_json)
    else:
        _show(database, largest or None, as_json=as_json)


def _show(database: Database, largest: int | None, *, as_json: bool) -> None:
    with database.connect(Role.READER, autocommit=True) as connection:
        found = placement.look(connection)
        names = names_of(connection)
    tenants = [_tenant(found, one, names) for one in found.places]
    tenants.sort(key=lambda row: (-(row["bytes"] or 0), row["customer_id"]))
    nodes = [_node(found, node) for node in found.nodes]
    copies: list[dict[str, Any]] = [
        {
            "customer_id": copy.customer_id,
            "to": found.address(copy.group),
            "copied": found.load_of(copy.customer_id, copy.group)[0],
        }
        for copy in found.copies
    ]
    if as_json:
        last = found.rebalance
        print_json({"nodes": nodes, "tenants": tenants, "moves": copies, "rebalance": last and _rebalancing(last)})
        return
    show_rows(map(_readable, nodes), list(nodes[0]), as_json=False, empty="")
    console.print()
    columns = ["customer_id", "name", "node", "bytes", "rows_written_per_s"]
    show_rows(map(_readable, tenants[:largest]), columns, as_json=False, empty="no tenants yet")
    if largest is not None and len(tenants) > largest:
        console.print(f"and {plural(len(tenants) - largest, 'smaller tenant')}: --largest 0 shows all", highlight=False)
    for copy in copies:
        moving = f"customer {copy['customer_id']} is being moved to {copy['to']}: {size(copy['copied'] or 0)} are there"
        console.print(moving, highlight=False)
    if found.rebalance is not None and found.rebalance.is_under_way:
        console.print(f"{_told(found.rebalance)}; --stop ends it", highlight=False)


def _move(database: Database, settings: Settings, customer: Any, to: str, *, as_json: bool) -> None:
    from clientmgr.tenants.moves import move_tenant

    with stopped_by_signals(), progress_bar(f"customer {customer}", None) as bar:

        def show(progress: "Progress") -> None:
            # An empty table has pages on one side before the other: never more than all.
            copied = min(progress.copied, progress.bytes)
            description = f"customer {customer}: {progress.phase.lower()}"
            bar.update(bar.task_ids[0], description=description, total=progress.bytes, completed=copied)

        try:
            moved = move_tenant(database, settings, customer, to, actor=actor(), on_progress=show)
        except KeyboardInterrupt:
            told = "stopped: the tenant stays where it was, and what was copied is removed. Move it anew when you like"
            errors.print(told, highlight=False)
            raise
    if as_json:
        print_json({"customer_id": moved.customer_id, "from": moved.source, "to": moved.target, "moved": moved.changed})
    elif moved.changed:
        console.print(
            f"customer {customer} lies on {moved.target} now, moved in {span(moved.seconds)}", highlight=False
        )
    else:
        console.print(f"customer {customer} lies on {moved.target} already", highlight=False)


def _rebalance(database: Database, settings: Settings, by: Measure, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    audit = AuditLogger.from_settings(settings)
    with database.connect(Role.DDL, autocommit=True) as connection:
        under_way = placement.find_rebalance(connection)
        if under_way is None or not under_way.is_under_way:
            planned = rebalancing.plan(connection, by)
            rows = [{"customer_id": one.customer_id, "from": one.source, "to": one.target} for one in planned]
            if dry_run or not planned:
                show_rows(rows, ["customer_id", "from", "to"], as_json=as_json, empty="nothing is to be moved")
                return
            if not yes:
                typer.confirm(f"Move {plural(len(planned), 'tenant')}?", abort=True, err=True)
            rebalancing.start(connection, audit, by, actor=actor())
        elif dry_run:
            raise InvalidInputError("--dry-run", "no rebalancing under way", _told(under_way))
        with _followed() as bar:

            def show(found: Rebalance) -> None:
                bar.update(bar.task_ids[0], total=found.moves, completed=found.moved)

            ended = rebalancing.follow(connection, audit, actor=actor(), on_progress=show)
    _report(ended, as_json=as_json)


def _stop(database: Database, settings: Settings, *, as_json: bool) -> None:
    audit = AuditLogger.from_settings(settings)
    with database.connect(Role.DDL, autocommit=True) as connection:
        ended = rebalancing.stop(connection, audit, actor=actor())
    if ended is None:
        console.print("no rebalancing is under way")
    elif as_json:
        print_json(_rebalancing(ended))
    else:
        console.print(f"{_told(ended)}. What was moved stays; the tenant in hand stays where it was", highlight=False)


@contextmanager
def _followed() -> "Iterator[Bar]":
    with stopped_by_signals(), progress_bar("rebalancing", None) as bar:
        try:
            yield bar
        except KeyboardInterrupt:
            told = "the rebalancing goes on: `clientmgr tenants place` shows it, and with --stop ends it"
            errors.print(told, highlight=False)
            raise


def _report(ended: Rebalance, *, as_json: bool) -> None:
    if as_json:
        print_json(_rebalancing(ended))
    else:
        console.print(_told(ended), highlight=False)
    if ended.state != "finished":
        raise typer.Exit(1)


def _told(rebalance: Rebalance) -> str:
    told = (
        f"rebalancing {rebalance.job_id} {rebalance.state}: {rebalance.moved} of {plural(rebalance.moves, 'move')} done"
    )
    return f"{told} ({rebalance.trouble})" if rebalance.trouble else told


def _rebalancing(rebalance: Rebalance) -> dict[str, Any]:
    return {name: getattr(rebalance, name) for name in rebalance.__slots__}


def _tenant(found: Placement, place: placement.Place, names: Any) -> dict[str, Any]:
    used, rate = found.load_of(place.customer_id, place.group)
    return {
        "customer_id": place.customer_id,
        "name": names.get(place.customer_id),
        "node": found.address(place.group),
        "bytes": used,
        "rows_written_per_s": rate,
    }


def _node(found: Placement, node: Node) -> dict[str, Any]:
    load = found.loads.get(node.group, NodeLoad())
    return {
        "node": node.address,
        "tenants": sum(place.group == node.group for place in found.places),
        "bytes": load.bytes,
        "rows_written_per_s": load.rows_written_per_s,
        "connections": load.connections,
        "state": found.state_of(node),
    }


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    """Sizes and rates as people write them."""
    rate = row["rows_written_per_s"]
    shown = None if row["bytes"] is None else size(row["bytes"])
    return {**row, "bytes": shown, "rows_written_per_s": None if rate is None else f"{rate:,.0f}"}
