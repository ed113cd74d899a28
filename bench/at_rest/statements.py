"""Who asks an idle database how often: the server writes down each statement for a while, and we count."""

import re
import time
from collections import Counter

import psycopg

from bench.at_rest.command import RunningCommand

Statements = dict[tuple[str, str], float]
"""By user with application, and the statement's beginning: how many a minute."""

BEGINNING = 110
_LINE = re.compile(r"^at-rest (?P<who>\S*) LOG:  (?:statement|execute [^:]*): (?P<what>.*)$", re.MULTILINE)
_VALUE = re.compile(r"'[^']*'|\b\d+\b")


def count_statements(command: RunningCommand, seconds: float) -> Statements:
    with psycopg.connect(command.superuser_url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET log_statement = 'all'")
        connection.execute("ALTER SYSTEM SET log_line_prefix = 'at-rest %u/%a '")
        written_before = command.server_log.stat().st_size
        connection.execute("SELECT pg_reload_conf()")
        time.sleep(seconds)
        connection.execute("ALTER SYSTEM RESET log_statement")
        connection.execute("SELECT pg_reload_conf()")
    with command.server_log.open("rb") as log:
        log.seek(written_before)
        written = log.read().decode(errors="replace")
    counts = Counter((found["who"], _shape(found["what"])) for found in _LINE.finditer(written))
    return {key: count * 60 / seconds for key, count in counts.items() if not key[0].startswith("postgres/")}


def _shape(statement: str) -> str:
    """Its beginning, without values: what differs in them alone is one statement."""
    return " ".join(_VALUE.sub("?", statement).split())[:BEGINNING]
