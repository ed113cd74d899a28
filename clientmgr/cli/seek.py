"""`clientmgr topics seek`: have a subscription read a part of its topic again, or pass over it."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

import typer
from psycopg import AsyncConnection

from clientmgr.audit.log import AuditLogger
from clientmgr.base.database import Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.wording import plural
from clientmgr.broker import seek_actions as actions
from clientmgr.broker.postgres.seeking import SeekReport
from clientmgr.cli.failure_filters import parse_moment
from clientmgr.cli.failures import DryRunOption
from clientmgr.cli.output import JsonOption, YesOption, actor, console, open_database, print_json, show_rows

START, END = "--to-start", "--to-end"


def seek(
    subscription: Annotated[str, typer.Argument(show_default=False)],
    *,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=1, help="The next offset to read.", show_default=False)
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            help="Go on with what was published at this time or later: 2026-01-31T12:00, or 2h or 7d ago.",
            show_default=False,
        ),
    ] = None,
    to_start: Annotated[bool, typer.Option(START, help="Read all that the topic still keeps.")] = False,
    to_end: Annotated[bool, typer.Option(END, help="Pass over all that was published so far.")] = False,
    by_partition: Annotated[bool, typer.Option("--by-partition", help="Show the move of each partition.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Move a subscription in its topic: back, to read messages again, or forward, to skip some.

    Its workers may run meanwhile; batches in hand are finished first. What handlers did is not undone: they meet the
    messages once more. The audit log keeps who did it, and how many messages come again or are skipped.
    """
    places = {"--to-offset": to_offset, "--to-time": to_time, START: to_start, END: to_end}
    given = [option for option, value in places.items() if value]
    if len(given) != 1:
        raise InvalidInputError("where to", f"exactly one of {', '.join(places)}", " ".join(given) or "none")
    moment = None if to_time is None else parse_moment(to_time, field="--to-time")
    database, settings = open_database()

    async def place(connection: AsyncConnection[Any]) -> actions.Place:
        if to_start:
            return await actions.start_of(connection, subscription)
        if to_end:
            return await actions.end_of(connection, subscription)
        return actions.Place(to_offset, moment)

    async def run() -> SeekReport:
        async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
            there = await place(connection)
            expected = await actions.preview(connection, subscription, there)
            if dry_run:
                return expected
            if not yes:
                _show(subscription, expected, by_partition=by_partition, moved="would move")
                typer.confirm(f"Move {subscription}?", abort=True, err=True)
            audit = AuditLogger.from_settings(settings)
            return await actions.seek(connection, subscription, there, audit, actor=actor())

    report = asyncio.run(run())
    if as_json:
        print_json({"subscription": subscription, "dry_run": dry_run, **asdict(report)})
        return
    _show(subscription, report, by_partition=by_partition, moved="would move" if dry_run else "moved")
    if dry_run:
        console.print("nothing was done", highlight=False)


def _show(subscription: str, report: SeekReport, *, by_partition: bool, moved: str) -> None:
    target = report.partitions[0].to_offset
    console.print(
        f"{subscription} {moved} to offset {target} of {report.topic}: "
        f"{plural(report.again, 'message')} again, {report.skipped} skipped",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if by_partition:
        rows = [asdict(partition) for partition in report.partitions]
        show_rows(rows, ["partition_id", "from_offset", "to_offset"], as_json=False, empty="")
