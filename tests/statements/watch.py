"""Reads the log of the tests' PostgreSQL server, in which every statement stands, and finds those that break a rule.

All statements count, of the tests too: they call the code in their own process as often as in another, and a test that
mixes tenants up proves nothing.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests.statements.rules import complaint, tenant_tables

STATEMENTS: Final = "statements"
"""The folder of the log, in the server's data."""
SERVER_SETTINGS: Final = (
    ("log_statement", "all"),
    # Texts without the values that belong to them: those are data, and long.
    ("log_parameter_max_length", "0"),
    ("log_parameter_max_length_on_error", "0"),
    ("logging_collector", "on"),
    ("log_destination", "jsonlog"),
    ("log_directory", STATEMENTS),
    ("log_filename", "%s.log"),
    ("log_rotation_size", "64MB"),
    ("log_rotation_age", "0"),
)
MOST_SHOWN: Final = 1500
_BEGINNING: Final = re.compile(r"^(?:statement|execute [^:]*|fetch from [^:]*): ")


class _Record(msgspec.Struct):
    timestamp: str = ""
    message: str = ""
    application_name: str = ""
    statement: str = ""
    dbname: str = ""


class StatementWatch:
    """Follows the log. What was read is deleted, once the server has begun another file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._decoder = msgspec.json.Decoder(_Record)
        names = "|".join(sorted(tenant_tables())).encode()
        # Nearly all statements are of no interest, and told from the others before they are parsed.
        self._worth_a_look = re.compile(rb"tenant_[1-9]|search_path|\s\\?\"?(?:" + names + rb")\b", re.IGNORECASE)
        self._judged: dict[str, str] = {}

    def complaints(self) -> list[str]:
        """About the statements since the last call, in readable form."""
        found = []
        for record in self._fresh():
            statement, begins = _BEGINNING.subn("", record.message, count=1)
            if not begins:
                # An error's record carries the statement that failed: what was refused was tried.
                statement = record.statement
            if problem := self._judge(statement):
                found.append(
                    f"{problem} ({record.timestamp}, {record.application_name or 'no application name'}, "
                    f"database {record.dbname}):\n{statement[:MOST_SHOWN]}"
                )
        return found

    def _judge(self, statement: str) -> str:
        if statement not in self._judged:
            if len(self._judged) > 20_000:
                self._judged.clear()
            self._judged[statement] = complaint(statement)
        return self._judged[statement]

    def _fresh(self) -> Iterator[_Record]:
        files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
        for file in files:
            with file.open("rb") as log:
                log.seek(self._read.get(file, 0))
                while line := log.readline():
                    if not line.endswith(b"\n"):
                        break  # still being written
                    self._read[file] = self._read.get(file, 0) + len(line)
                    if self._worth_a_look.search(line):
                        yield self._decoder.decode(line)
        for file in files[:-1]:
            self._read.pop(file, None)
            file.unlink()
