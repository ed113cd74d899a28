"""Tenants that a batch could not read, by run and step. The others went on; these are reported."""

from collections.abc import Mapping
from typing import Any

from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.sqlfiles import named_queries

_QUERIES = named_queries("operations/queries/batch_failures.sql")


def record_failures(connection: Connection[Any], run_id: str, step: str, failures: Mapping[int, str]) -> None:
    """Replace the record of this run and step, in the caller's transaction."""
    connection.execute(_QUERIES["forget"], {"run_id": run_id, "step": step})
    if failures:
        columns = {"customers": list(failures), "errors": list(failures.values())}
        connection.execute(_QUERIES["record"], {"run_id": run_id, "step": step} | columns)


def failures_of(connection: Connection[Any], run_id: str, step: str) -> dict[CustomerId, str]:
    rows = connection.execute(_QUERIES["list"], {"run_id": run_id, "step": step})
    return {CustomerId(customer_id): error for customer_id, error in rows}
