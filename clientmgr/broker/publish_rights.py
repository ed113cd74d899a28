"""The role of those who may publish by SQL and do nothing else. To which topics, the table of the same name says."""

from typing import Any

from psycopg import Connection

from clientmgr.base.sqlfiles import named_queries

QUERIES = named_queries("publishing/queries/rights.sql")


def ensure_grants(connection: Connection[Any]) -> None:
    """Let clientmgr_publisher publish. For the owner, after migrations: somebody else may have had to make the role."""
    connection.execute(QUERIES["ensure_grants"])
