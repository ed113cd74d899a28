"""The statements that may name several tenants, or a tenant's table without its schema: each with the reason.

An entry is a regular expression that the statement matches. Keep it as narrow as its reason.
"""

from typing import Final

ALLOWED: Final[dict[str, str]] = {
    r'^TRUNCATE "tenant_': (
        "tests/streaming/test_any_history.py empties its tenants between two histories, as their owner. "
        "The role of the daemons has no right to TRUNCATE."
    ),
    r"^LOCK TABLE clientmgr\.migrations, ": "pg_dump locks all that it is about to write into a backup.",
}
