"""`clientmgr` called inside the test's own process: much quicker than a new one, and through the same `main`."""

import contextlib
import io
import json
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from clientmgr.base.database import Database
from clientmgr.cli import main, output
from tests.keys import TEST_KEY


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Cli:
    """Calls commands on one database."""

    environment: Mapping[str, str]

    @classmethod
    def on(cls, database: Database, folder: Path, **settings: str) -> "Cli":
        return cls({"DATABASE_URL": database.url, "DATA_DIR": str(folder), "AUDIT_HASH_KEY": TEST_KEY, **settings})

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Result:
        out, err = io.StringIO(), io.StringIO()
        handlers = logging.getLogger().handlers[:]
        code: object = 0
        with (
            mock.patch.dict(os.environ, self.environment),
            mock.patch.object(sys, "argv", ["clientmgr", *arguments]),
            mock.patch.object(output, "_failures_are_logged", False),  # a process of its own would not know either
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
            finally:
                logging.captureWarnings(False)
                logging.getLogger().handlers[:] = handlers
        assert isinstance(code, int)
        return Result(code, out.getvalue(), err.getvalue())

    def ok(self, *arguments: str, stdin: bytes = b"") -> Result:
        """The result of a command that must succeed."""
        result = self(*arguments, stdin=stdin)
        assert result.code == 0, result
        return result
