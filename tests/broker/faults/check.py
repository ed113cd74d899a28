"""The verdict on a run, read from the database in one snapshot: what was lost, doubled, reordered, split or made up."""

import enum
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection, IsolationLevel
from psycopg.rows import class_row, tuple_row

from clientmgr.base.sqlfiles import named_queries

QUERIES = named_queries(str(Path(__file__).with_name("check.sql")))
SCHEMA = Path(__file__).with_name("schema.sql")


class Violation(enum.StrEnum):
    """What must never happen. The values are names of queries in check.sql."""

    LOST = "lost"
    DOUBLED = "doubled"
    INVENTED = "invented"
    OUT_OF_ORDER = "out_of_order"
    SPLIT = "split"
    WRONGLY_DEAD = "wrongly_dead"
    POISON_HANDLED = "poison_handled"
    GAP = "gap"
    WRONGLY_ECHOED = "wrongly_echoed"


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation, how often, and one example of it."""

    violation: Violation
    times: int
    example: str

    def __str__(self) -> str:
        return f"{self.violation} {self.times}× ({self.example})"


@dataclass(frozen=True, slots=True)
class Tally:
    """How much of everything there was."""

    transactions: int
    messages: int
    poison_transactions: int
    handled: int
    dead: int
    retried: int
    trimmed: int
    rolled_back: int
    slow_commits: int
    transient_failures: int

    def __str__(self) -> str:
        return ", ".join(f"{getattr(self, field.name)} {field.name.replace('_', ' ')}" for field in fields(self))


def install_schema(connection: Connection[Any]) -> None:
    connection.execute(SCHEMA.read_bytes())


def find_violations(url: str) -> list[Finding]:
    """Everything that is wrong at this moment. Empty while processes are at work is as good as empty at the end."""
    findings = []
    with psycopg.connect(url) as connection, connection.cursor(row_factory=tuple_row) as cursor:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        for violation in Violation:
            times, example = cursor.execute(QUERIES[violation].encode()).fetchall()[0]
            if times:
                findings.append(Finding(violation, times, example))
    return findings


def read_tally(url: str) -> Tally:
    with psycopg.connect(url) as connection, connection.cursor(row_factory=class_row(Tally)) as cursor:
        return cursor.execute(QUERIES["tally"].encode()).fetchall()[0]
