"""How a command that failed ends: a sentence and an exit code. Only what nobody foresaw is a traceback."""

import errno
import re
from typing import NoReturn

import psycopg

from clientmgr.base.errors import ClientManagerError, EmbeddedServerError, InvalidInputError, SettingsError
from clientmgr.cli.output import fail

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3

_WRONG_PATH = {
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EROFS, errno.ELOOP,
    errno.ENAMETOOLONG,
}  # fmt: skip
"""What is wrong with a path that somebody gave us, and not with the disk."""


def end_with(error: Exception) -> NoReturn:
    """Say what is wrong and end, or raise the error again."""
    if isinstance(error, (InvalidInputError, SettingsError)):
        fail(str(error), EXIT_USAGE)
    if isinstance(error, EmbeddedServerError):
        fail(str(error), EXIT_UNREACHABLE)
    if isinstance(error, ClientManagerError):
        fail(str(error), EXIT_FAILED)
    if isinstance(error, psycopg.Error):
        if isinstance(error, (psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedColumn)):
            # What it is called inside is nobody's business.
            fail("the control schema is older than this release: `clientmgr migrate` brings it up to date", EXIT_FAILED)
        if _control_schema_is_missing(error):
            fail(f"{_first_line(error)}: is the control schema there? `clientmgr migrate` makes it", EXIT_FAILED)
        if isinstance(error, psycopg.OperationalError):
            fail(f"PostgreSQL: {_first_line(error)}. `clientmgr config` shows where it is looked for", EXIT_UNREACHABLE)
        fail(f"PostgreSQL: {_first_line(error)}", EXIT_FAILED)
    if isinstance(error, OSError) and error.filename is not None and error.errno in _WRONG_PATH:
        fail(f"{error.filename}: {error.strerror}", EXIT_USAGE)
    if isinstance(error, OSError):
        fail(str(error), EXIT_FAILED)
    raise error


def _control_schema_is_missing(error: psycopg.Error) -> bool:
    if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)):
        return True
    # Our roles come with the control schema. A refused log-in carries no SQLSTATE: only its text tells.
    return re.search(r'role "clientmgr_\w+" (does not exist|is not permitted to log in)', str(error)) is not None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
