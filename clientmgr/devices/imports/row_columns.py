"""Rows of a file as columns: a value that many rows have is looked at once, and a column of texts as one text. Pure.

What is unusual about a row, and whatever is wrong with it, is left to `rows.py`. Tests hold both to the same.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Raw

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts.decoding import MAX_IDENTIFIER_BYTES
from clientmgr.contracts.device_events import PushTokenPayload
from clientmgr.contracts.device_fields import Kind
from clientmgr.devices.imports import columns, rows
from clientmgr.devices.imports.columns import Plan
from clientmgr.devices.imports.files import RawRow
from clientmgr.devices.imports.rows import ImportedRow, RowConverter, RowError

SUBSCRIPTION_COLUMNS: Final = (columns.WEB_PUSH, columns.ENDPOINT, columns.P256DH, columns.AUTH)
TOKEN_COLUMNS: Final = (columns.TOKEN, columns.KIND, columns.STATUS, *SUBSCRIPTION_COLUMNS)
_ODD: Final = object()
"""In the place of a value that can't be taken."""


@dataclass(slots=True)
class RowColumns:
    """What some rows of one tenant say."""

    raws: list[RawRow] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    application_codes: list[str] = field(default_factory=list)
    client_ids: list[str] = field(default_factory=list)
    info: dict[str, list[str | None]] = field(default_factory=dict)
    """By field: cells of COPY, to be escaped."""
    contact_ids: list[int | None] = field(default_factory=list)
    unlinked_at: list[int | None] = field(default_factory=list)
    tokens: list[PushTokenPayload | None] = field(default_factory=list)
    are_invalid: list[bool] = field(default_factory=list)
    """The provider called the token so."""

    def __len__(self) -> int:
        return len(self.raws)

    @classmethod
    def of(cls, converted: Sequence[tuple[ImportedRow, RawRow]]) -> "RowColumns":
        names = {name for row, _ in converted for name in row.info}
        return cls(
            [raw for _, raw in converted],
            [row.version for row, _ in converted],
            [row.application_code for row, _ in converted],
            [row.client_id for row, _ in converted],
            {name: [_cell(row.info[name]) if name in row.info else None for row, _ in converted] for name in names},
            [row.contact_id for row, _ in converted],
            [row.unlinked_at for row, _ in converted],
            [row.token for row, _ in converted],
            [row.is_invalid for row, _ in converted],
        )

    def add(self, other: "RowColumns") -> None:
        """Append the other's rows."""
        count, more = len(self), len(other)
        for name in self.info.keys() | other.info.keys():
            of_both = self.info.setdefault(name, [None] * count)
            of_both += other.info.get(name) or [None] * more
        for name in _BY_ROW:
            getattr(self, name).extend(getattr(other, name))

    def without(self, left_out: set[int]) -> "RowColumns":
        if not left_out:
            return self
        kept = [number not in left_out for number in range(len(self))]
        info = {name: list(itertools.compress(cells, kept)) for name, cells in self.info.items()}
        by_row = {name: list(itertools.compress(getattr(self, name), kept)) for name in _BY_ROW}
        return RowColumns(info=info, **by_row)


_BY_ROW: Final = tuple(one.name for one in fields(RowColumns) if one.name != "info")


def usual_rows_by_customer(
    plan: Plan, raws: list[RawRow], converter: RowConverter
) -> tuple[dict[CustomerId, RowColumns], list[RawRow]]:
    """Rows with the same columns: those that say only what most files say, by customer, and all others."""
    place = plan.single.get(columns.CUSTOMER)
    grouped: dict[Any, list[RawRow]] = {None: raws} if place is None else {}
    if place is not None:
        for raw in raws:
            value = raw.values[place]
            grouped.setdefault("" if value is None else str(value), []).append(raw)
    usual: dict[CustomerId, RowColumns] = {}
    odd: list[RawRow] = []
    for value, of_customer in grouped.items():
        try:
            customer_id = converter.customer(value or None)
        except RowError:
            odd += of_customer
            continue
        made, unusual = usual_rows(plan, of_customer, converter)
        odd += unusual
        if customer_id in usual:
            usual[customer_id].add(made)
        elif len(made):
            usual[customer_id] = made
    return usual, odd


def usual_rows(plan: Plan, raws: list[RawRow], converter: RowConverter) -> tuple[RowColumns, list[RawRow]]:
    """Rows of one customer with the same columns: those that say only what most files say, and all others."""
    if plan.unknown or plan.members:
        return RowColumns(), raws
    reading = _Reading(plan, raws)
    made = RowColumns(
        list(raws),
        reading.versions(converter),
        reading.identifiers(columns.APPLICATION, converter, converter.application_code),
        reading.identifiers(columns.CLIENT, converter),
        {name: reading.info(place, json_name, kind) for place, name, json_name, kind in plan.info},
        reading.parsed(columns.CONTACT, rows.contact_id_of),
    )
    since = reading.parsed(columns.ORPHANED_SINCE, lambda value: rows.moment_of(columns.ORPHANED_SINCE, value))
    made.unlinked_at = [
        None if moment is None or contact is not None else min(version, moment)
        for version, contact, moment in zip(made.versions, made.contact_ids, since, strict=True)
    ]
    made.tokens, made.are_invalid = reading.tokens()
    return made.without(reading.odd), [raws[number] for number in sorted(reading.odd)]


class _Reading:
    """The columns of some rows, and which rows can't be taken by column."""

    def __init__(self, plan: Plan, raws: list[RawRow]) -> None:
        self._plan = plan
        self._count = len(raws)
        self._columns = list(zip(*[raw.values for raw in raws], strict=True))
        self.odd: set[int] = set()

    def parsed(self, name: str, parse: Callable[[Any], Any]) -> list[Any]:
        """Of one column each value once; None where a cell is empty, or where the row is odd."""
        place = self._plan.single.get(name)
        return [None] * self._count if place is None else self._parsed(place, parse)

    def identifiers(self, name: str, converter: RowConverter, default: str | None = None) -> list[Any]:
        place = self._plan.single.get(name)
        found: list[str | None] = [None] * self._count
        if place is not None:
            found = self._texts(place, lambda value: converter.identifier(name, value), MAX_IDENTIFIER_BYTES)
        if None in found:
            instead = None if default is None else _taken(default, lambda value: converter.identifier(name, value))
            if instead is None or instead is _ODD:
                self.odd.update(number for number, value in enumerate(found) if value is None)
            else:
                found = [value or instead for value in found]
        return found

    def info(self, place: int, json_name: str, kind: Kind) -> list[str | None]:
        def cell_of(value: Any) -> str:
            return _cell(rows.PARSERS[kind](json_name, value))

        return self._texts(place, cell_of) if kind is Kind.TEXT else self._parsed(place, cell_of)

    def versions(self, converter: RowConverter) -> list[int]:
        def moments(name: str) -> list[Any]:
            return self.parsed(name, lambda value: converter.past_moment(name, value))

        occurred = moments(columns.OCCURRED_AT)
        if None not in occurred:
            return occurred
        # Where it is known when a row's device changed, nobody asks when it was seen.
        odd, self.odd = self.odd, set()
        seen = moments(columns.LAST_SEEN)
        self.odd = odd | {number for number in self.odd if occurred[number] is None}
        return [one or other or converter.default_version for one, other in zip(occurred, seen, strict=True)]

    def tokens(self) -> tuple[list[PushTokenPayload | None], list[bool]]:
        single = self._plan.single
        names = [name for name in TOKEN_COLUMNS if name in single]
        subscriptions = [self._columns[single[name]] for name in names if name in SUBSCRIPTION_COLUMNS]
        if any(value is not None and value != "" for column in subscriptions for value in column):
            return self._tokens_by_row(names)
        if columns.TOKEN not in single:
            return [None] * self._count, [False] * self._count
        texts = self._texts(single[columns.TOKEN], rows.token_part, rows.LONGEST_TOKEN)
        kinds = self._texts(single[columns.KIND], str) if columns.KIND in single else texts
        statuses = self._texts(single[columns.STATUS], str) if columns.STATUS in single else ()
        there = [text is not None for text in texts]
        if not set(itertools.compress(kinds, there)) <= rows.KINDS_OF_TEXT:
            return self._tokens_by_row(names)
        if not set(itertools.compress(statuses, there)) <= {None, "valid"}:
            return self._tokens_by_row(names)
        made = [
            None if text is None else PushTokenPayload(kind, push_token=text)
            for kind, text in zip(kinds, texts, strict=True)
        ]
        return made, [False] * self._count

    def _tokens_by_row(self, names: list[str]) -> tuple[list[PushTokenPayload | None], list[bool]]:
        made: list[tuple[PushTokenPayload | None, bool]] = []
        for number, cells in enumerate(zip(*[self._columns[self._plan.single[name]] for name in names], strict=True)):
            said = {name: cell for name, cell in zip(names, cells, strict=True) if cell is not None and cell != ""}
            try:
                made.append(rows.token_in(said))
            except RowError:
                made.append((None, False))
                self.odd.add(number)
        return [token for token, _ in made], [is_invalid for _, is_invalid in made]

    def _parsed(self, place: int, parse: Callable[[Any], Any]) -> list[Any]:
        values = self._columns[place]
        types = set(map(type, values)) - {type(None)}
        # What is equal may be of several types, and mean something else in each: 1 and True.
        if len(types) == 1 and not types & {dict, list}:
            known = {value: _taken(value, parse) for value in set(values)}
            made = [known[value] for value in values]
            if _ODD not in known.values():
                return made
        else:
            made = [_taken(value, parse) for value in values]
        self.odd.update(number for number, value in enumerate(made) if value is _ODD)
        return [None if value is _ODD else value for value in made]

    def _texts(self, place: int, parse: Callable[[Any], Any], longest: int | None = None) -> list[Any]:
        """The same for texts. ASCII without a NUL is as it should be, and that is seen at once for all of them."""
        values = self._columns[place]
        if set(map(type, values)) <= {str, type(None)}:
            given = [value for value in values if value]
            whole = "\0".join(given)
            is_short = longest is None or max(map(len, given), default=0) <= longest
            if is_short and whole.isascii() and whole.count("\0") == max(len(given) - 1, 0):
                return list(values) if len(given) == len(values) else [value or None for value in values]
        return self._parsed(place, parse)


def _taken(value: Any, parse: Callable[[Any], Any]) -> Any:
    if value is None or value == "":
        return None
    try:
        return parse(value)
    except RowError:
        return _ODD


def _cell(value: Any) -> str:
    """A cell that is still to be escaped."""
    if value.__class__ is str:
        return str(value)
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return (bytes(value) if isinstance(value, Raw) else msgspec.json.encode(value)).decode()
