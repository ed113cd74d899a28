"""Makes one row of a tenant's numbers from those of its slices: exactly, because no two slices count the same.

Devices are counted by ranges of pages and distinct contacts by ranges of contacts (`packing.Slice`), all at one moment.
So numbers add up, also those of distinct contacts; the rest is the largest of each slice's.
"""

import json
from collections import Counter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from clientmgr_dagster.spark.device_columns import CUSTOMER, ERROR

LARGEST: Final = frozenset({"last_write_at", "table_bytes"})
"""Of the whole table, or a maximum: added up they would mean nothing."""


def one_row_each(counts: DataFrame) -> DataFrame:
    """A row for each tenant. One of whose slices could not be read has only its `error`."""
    schema = counts.schema
    arrow_schema = to_arrow_schema(schema, timezone="UTC")

    def combine(found: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([combined(found.to_pylist())], schema=arrow_schema)

    return counts.groupBy(CUSTOMER).applyInArrow(combine, schema)


def combined(slices: list[dict[str, Any]]) -> dict[str, Any]:
    """One tenant's row, from those of all its slices."""
    names = slices[0].keys()
    errors = sorted(one[ERROR] for one in slices if one[ERROR] is not None)
    if errors:
        return {**dict.fromkeys(names), CUSTOMER: slices[0][CUSTOMER], ERROR: errors[0]}
    row: dict[str, Any] = {CUSTOMER: slices[0][CUSTOMER], ERROR: None}
    for name in names - row.keys():
        values = [one[name] for one in slices]
        if name in LARGEST:
            row[name] = max((value for value in values if value is not None), default=None)
        elif all(isinstance(value, str) for value in values):
            row[name] = json.dumps(sum((Counter(json.loads(value)) for value in values), Counter()))
        else:
            row[name] = sum(values)
    return row
