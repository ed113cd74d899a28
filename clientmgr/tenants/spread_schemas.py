"""How tenants' schemas are made and migrated where they are spread over a Citus cluster.

One statement at a time, and with rights and settings that nodes do not have by themselves.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import Connection

from clientmgr.base.citus import SPREAD_NEW_SCHEMAS
from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.sql_statements import statements_of
from clientmgr.base.sqlfiles import named_queries


def begin_spreading(connection: Connection[Any], settings: Mapping[str, str]) -> None:
    """In the transaction that is to make or migrate schemas. The settings count on the nodes too."""
    travelling = [f"SET LOCAL {name} = '{value}'" for name, value in settings.items()]
    commands = ["SET LOCAL citus.propagate_set_commands = 'local'", *travelling, SPREAD_NEW_SCHEMAS]
    connection.execute("; ".join(commands).encode())


def apply_spread(connection: Connection[Any], customer_id: CustomerId, files: Sequence[str]) -> None:
    """Run these texts for one tenant. Its statements are sent together, and so is what comes back."""
    grants = named_queries("tenants/queries/spread.sql")["grants"]
    with connection.pipeline():
        for text in (*files, grants):
            for statement in statements_of(text):
                connection.execute(in_schema(statement, customer_id).encode(), prepare=False)
