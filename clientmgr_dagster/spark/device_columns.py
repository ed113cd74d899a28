"""The columns of `devices` that Spark may read: their types, and how they are written in SQL. Pure.

A read names the columns that it wants in its schema, and only those leave PostgreSQL.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from psycopg import sql
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from clientmgr.base.errors import InvalidInputError
from clientmgr.contracts.device_fields import FIELDS, Kind
from clientmgr.devices.queries import SILENT_SINCE

CUSTOMER: Final = "customer_id"
ERROR: Final = "error"
"""Why a tenant could not be read; null in the rows of those that could."""

_COMPUTED: Final = {"silent_since": SILENT_SINCE}
"""Timestamps that PostgreSQL computes from columns, and compares as it does columns. `devices` is called `d` there."""

COLUMN_TYPES: Final = {
    **{field.name: field.kind.spark_type for field in FIELDS if field.in_spark},
    **dict.fromkeys(_COMPUTED, Kind.TIME.spark_type),
}
"""Push tokens themselves are not among them: whoever compares them compares digests."""

_CONVERSIONS: Final = {Kind.JSON: "{}::text", Kind.BYTES: "encode({}, 'hex')"}
_EXPRESSIONS: Final = {
    field.name: _CONVERSIONS[field.kind].format(field.name) for field in FIELDS if field.kind in _CONVERSIONS
}
_COMPARISONS: Final = {GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}


def schema_of(columns: Sequence[str], *, with_errors: bool = False) -> str:
    """Spark's schema of a read of these columns, the customer first."""
    unknown = sorted(set(columns) - COLUMN_TYPES.keys())
    if unknown:
        raise InvalidInputError("columns", f"some of {', '.join(COLUMN_TYPES)}", ", ".join(unknown))
    fields = [f"{CUSTOMER} bigint", *(f"{name} {COLUMN_TYPES[name]}" for name in columns)]
    return ", ".join([*fields, f"{ERROR} string"] if with_errors else fields)


def select_list(names: Iterable[str], customer_id: int) -> str:
    """The columns of a read, in its order, for one customer."""
    return ", ".join(_selected(name, customer_id) for name in names)


def _selected(name: str, customer_id: int) -> str:
    if name == CUSTOMER:
        return f"{customer_id:d}::bigint AS {CUSTOMER}"
    if name == ERROR:
        return f"NULL::text AS {ERROR}"
    if name not in COLUMN_TYPES:
        raise InvalidInputError("columns", "a column of devices", name)
    return f"{_COMPUTED.get(name) or _EXPRESSIONS.get(name, name)} AS {name}"


def customers_of(condition: Filter) -> frozenset[int] | None:
    """The customers that a filter leaves, where it is about the customer; None: it is about something else."""
    if isinstance(condition, EqualTo) and condition.attribute == (CUSTOMER,):
        return frozenset({condition.value})
    if isinstance(condition, In) and condition.attribute == (CUSTOMER,):
        return frozenset(condition.value)
    return None


def to_sql(condition: Filter) -> str | None:
    """The filter as PostgreSQL understands it in the same way; None: Spark has to apply it itself."""
    if isinstance(condition, Not):
        inside = to_sql(condition.child)
        return None if inside is None else f"NOT ({inside})"
    name = condition.attribute[0] if len(condition.attribute) == 1 else ""  # type: ignore[attr-defined]
    if name not in COLUMN_TYPES or name in _EXPRESSIONS:
        return None
    test = _test_of(condition)
    return None if test is None else f"{_COMPUTED.get(name, name)} {test}"


def _test_of(condition: Filter) -> str | None:
    """What a column is asked."""
    match condition:
        case IsNull():
            return "IS NULL"
        case IsNotNull():
            return "IS NOT NULL"
        case EqualTo() if _is_plain(condition.value):
            return f"= {_literal(condition.value)}"
        case In() if condition.value and all(_is_plain(value) for value in condition.value):
            return f"IN ({', '.join(_literal(value) for value in condition.value)})"
        case GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual() if _is_ordered(condition.value):
            return f"{_COMPARISONS[type(condition)]} {_literal(condition.value)}"
    return None


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, int, bool)) or _is_ordered(value)


def _is_ordered(value: object) -> bool:
    """Text is not: PostgreSQL orders it by the database's collation, Spark by its bytes. Nor is a naive time."""
    return isinstance(value, int) or (isinstance(value, datetime) and value.tzinfo is not None)


def _literal(value: object) -> str:
    return sql.Literal(value).as_string()
