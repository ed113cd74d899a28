"""The filters of `clientmgr failures`, once: what each is called, and the messages that they select together."""

import inspect
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Concatenate

import typer

from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.errors import InvalidInputError
from clientmgr.operations.failures.finding import Filter, Ref, State

_AGO = re.compile(r"([0-9]{1,5})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def with_filters(command: Callable[Concatenate[Filter, ...], None]) -> Callable[..., None]:
    """Give a command the filters as options; it is called with the filter that they make."""
    filters = inspect.signature(select).parameters
    own = list(inspect.signature(command).parameters.values())[1:]

    def run(**options: object) -> None:
        chosen = {name: options.pop(name) for name in filters}
        command(select(**chosen), **options)  # type: ignore[arg-type]  # typer made them

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    # What typer makes its options from.
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*filters.values(), *own)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def select(
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only of this topic, or in this error topic.")
    ] = None,
    subscription: Annotated[
        str | None, typer.Option("--subscription", "--group", "-s", help="Only those that failed in this subscription.")
    ] = None,
    customer: Annotated[str | None, typer.Option("--customer", "-c", help="Only of this customer.")] = None,
    error_class: Annotated[
        str | None, typer.Option("--error-class", "-e", help="Only with this kind of error.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Failed at or after this time: 2026-01-31T12:00, or 2h or 7d ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Failed before this time; written like --since.")] = None,
    contains: Annotated[str | None, typer.Option(help="Only with this text in the message or in its error.")] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Only this one (d17, e5-123); repeat it for more.")
    ] = None,
    state: Annotated[
        State | None, typer.Option(help="What became of it. Default: open; with --id any.", show_default=False)
    ] = None,
) -> Filter:
    """What the options select."""
    return Filter(
        topic=topic,
        subscription=subscription,
        tenant=None if customer is None else str(parse_customer_id(customer, field="--customer")),
        error_class=error_class,
        since=None if since is None else parse_moment(since, field="--since"),
        until=None if until is None else parse_moment(until, field="--until"),
        contains=contains,
        refs=[Ref.parse(one) for one in ids] if ids else None,
        # Whoever names a message means that one, whatever became of it.
        state=state or (State.ANY if ids else State.OPEN),
    )


def parse_moment(text: str, *, field: str, now: datetime | None = None) -> datetime:
    """A time as people write it: ISO 8601, in the local time zone unless it names another, or so long ago (`90m`)."""
    if match := _AGO.fullmatch(text):
        return (now or datetime.now(UTC)) - timedelta(**{_UNITS[match[2]]: int(match[1])})
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise InvalidInputError(field, "a time like 2026-01-31T12:00, or a span like 30m, 2h, 7d", text) from None
