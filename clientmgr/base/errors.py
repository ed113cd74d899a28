"""Every error of ours, and the one place that decides whether trying again can help.

Libraries' exceptions are recognised by the SQLSTATE or status they carry, so that nothing here has to import them.
"""

import enum
import math
from pathlib import PurePath
from typing import Any, Final

TRANSIENT_SQLSTATE_CLASSES: Final = frozenset({"08", "40", "53", "57"})
TRANSIENT_SQLSTATES: Final = frozenset(
    {
        "25006",  # read_only_sql_transaction: after a fail-over, a server that is no longer the one to write to
        "25P03",  # idle_in_transaction_session_timeout: a lease, or a publisher's time, was over
        "25P04",  # transaction_timeout
        "55P03",  # lock_not_available
    }
)
LOST_NODE_SQLSTATES: Final = frozenset({"57P01", "57P02", "57P03"})
"""Besides class 08. A server that ends, crashes or starts says so, and a Citus coordinator passes it on."""
LOST_NODE_TEXTS: Final = (
    "failure on connection marked as essential",
    "server closed the connection unexpectedly",
    "connection has been closed unexpectedly",
    "connection not open",
    "no connection to the server",
    "could not receive data from server",
    "could not send data to server",
)
"""What a Citus coordinator says, and what its libpq says to it, without an SQLSTATE of their own when a node is lost in
the middle of a transaction."""
PERMANENT_SQLSTATE_CLASSES: Final = frozenset({"22", "23"})
DATABASE_AT_FAULT_SQLSTATE_CLASSES: Final = frozenset({"42", "58", "F0"})

# gRPC status names (google-api-core and grpcio spell them alike) and AWS error codes that ask us to come back later.
TRANSIENT_STATUS_NAMES: Final = frozenset(
    {
        "ABORTED",
        "CANCELLED",  # what a gateway that stops answers to the calls under way
        "DEADLINE_EXCEEDED",
        "INTERNAL",
        "RESOURCE_EXHAUSTED",
        "UNAVAILABLE",
        "UNKNOWN",  # a server that failed without a word
    }
)
THROTTLING_AWS_CODES: Final = frozenset(
    {"ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException"}
)
TRANSIENT_AWS_CODES: Final = THROTTLING_AWS_CODES | {
    "InternalServerError",
    "LimitExceededException",
    "RequestTimeout",
    "ServiceUnavailable",
    "TransactionConflictException",
}


class ErrorKind(enum.Enum):
    """What an error says about the next attempt."""

    TRANSIENT = "transient"
    """The same work can succeed later."""

    PERMANENT = "permanent"
    """The same work can never succeed."""

    UNFORESEEN = "unforeseen"
    """Not foreseen: the same work is tried again, by itself, until its attempts run out."""


class ClientManagerError(Exception):
    """Base of our errors. The message is written for the person who reads it, without a traceback."""

    kind: ErrorKind = ErrorKind.UNFORESEEN


class TransientError(ClientManagerError):
    """Try again later."""

    kind = ErrorKind.TRANSIENT


class PermanentError(ClientManagerError):
    """Trying again is pointless."""

    kind = ErrorKind.PERMANENT


class InvalidInputError(PermanentError, ValueError):
    """A value from outside is not what it must be. Names the field and what was expected."""

    def __init__(self, field: str, expected: str, got: object) -> None:
        # A path is shown whole: its end is what tells.
        shown = str(got) if isinstance(got, PurePath) else repr(got)
        if len(shown) > 80 and not isinstance(got, PurePath):
            shown = shown[:77] + "…"
        super().__init__(f"{field}: expected {expected}, got {shown}")
        self.field = field


class SettingsError(PermanentError):
    """A setting is missing or wrong; nothing was started."""


class TenantUnavailableError(TransientError):
    """The customer is not active yet. What waits for it has not failed: waiting is no attempt.

    `until`: when the wait ends without an activation, in seconds since the epoch. An activation that was requested is
    waited for as long as it takes.
    """

    def __init__(self, message: str, *, until: float = math.inf) -> None:
        super().__init__(message)
        self.until = until


class ThrottledError(TransientError):
    """A store throttled us for longer than we could wait."""


class UnknownTenantError(PermanentError):
    """The customer was never activated, or is deleted."""


class MigrationError(PermanentError):
    """A migration can't be applied: its files are out of order, or an applied one was edited."""


class EmbeddedServerError(ClientManagerError):
    """An embedded server could not be started."""


def classify(error: BaseException) -> ErrorKind:
    """Decide whether the work that raised `error` can succeed when it is tried again."""
    if isinstance(error, ClientManagerError):
        return error.kind
    sqlstate = getattr(error, "sqlstate", None)
    if isinstance(sqlstate, str):
        return ErrorKind.TRANSIENT if _says_node_is_lost(sqlstate, error) else _classify_sqlstate(sqlstate)
    if _is_lost_connection(error) or _is_asked_to_come_back(error):
        return ErrorKind.TRANSIENT
    if isinstance(error, UnicodeDecodeError):
        return ErrorKind.PERMANENT
    return ErrorKind.UNFORESEEN


def is_permanent(error: BaseException) -> bool:
    """Whether trying again is pointless; everything else is worth another attempt."""
    return classify(error) is ErrorKind.PERMANENT


def is_transient(error: BaseException) -> bool:
    """Whether the error says nothing about the work itself: the same can succeed later."""
    return classify(error) is ErrorKind.TRANSIENT


def blames_the_database(error: BaseException) -> bool:
    """Whether any other work would fail there too: a table or a permission is missing, a disk is broken."""
    sqlstate = getattr(error, "sqlstate", None)
    return isinstance(sqlstate, str) and sqlstate[:2] in DATABASE_AT_FAULT_SQLSTATE_CLASSES


def is_behind_the_database(error: BaseException) -> bool:
    """Whether PostgreSQL says, over a connection that still lives, that another server behind it is lost."""
    sqlstate = getattr(error, "sqlstate", None)
    return isinstance(sqlstate, str) and (
        sqlstate[:2] == "08" or sqlstate in LOST_NODE_SQLSTATES or _says_node_is_lost(sqlstate, error)
    )


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error to report of a group: a task that fails ends the others, so the first says what went wrong."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def is_throttling(error: BaseException) -> bool:
    """Whether AWS throttles us: the same request succeeds when we ask more slowly."""
    return _aws_code(error) in THROTTLING_AWS_CODES


def _says_node_is_lost(sqlstate: str, error: BaseException) -> bool:
    return sqlstate == "XX000" and any(text in str(error) for text in LOST_NODE_TEXTS)


def _classify_sqlstate(sqlstate: str) -> ErrorKind:
    if sqlstate[:2] in TRANSIENT_SQLSTATE_CLASSES or sqlstate in TRANSIENT_SQLSTATES:
        return ErrorKind.TRANSIENT
    if sqlstate[:2] in PERMANENT_SQLSTATE_CLASSES:
        return ErrorKind.PERMANENT
    return ErrorKind.UNFORESEEN


def _is_lost_connection(error: BaseException) -> bool:
    if isinstance(error, (TimeoutError, ConnectionError)):
        return True
    names = {f"{cls.__module__.partition('.')[0]}.{cls.__name__}" for cls in type(error).__mro__}
    return not names.isdisjoint(
        {
            "psycopg.OperationalError",
            "psycopg_pool.PoolTimeout",
            "redis.ConnectionError",
            "redis.TimeoutError",
            "botocore.ConnectionError",
            "botocore.HTTPClientError",
            "google.RetryError",  # repeated until there was no time left
        }
    )


def _is_asked_to_come_back(error: BaseException) -> bool:
    """A remote service is throttling, restarting or overloaded."""
    status = getattr(error, "grpc_status_code", None)
    if status is None and callable(getattr(error, "code", None)):
        status = error.code()  # type: ignore[attr-defined]  # how grpc.RpcError states it
    if getattr(status, "name", None) in TRANSIENT_STATUS_NAMES:
        return True
    # A proxy between us and AWS has no AWS code, only an HTTP status.
    http_status = _aws_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return _aws_code(error) in TRANSIENT_AWS_CODES or bool(http_status >= 500)


def _aws_code(error: BaseException) -> object:
    return _aws_response(error).get("Error", {}).get("Code")


def _aws_response(error: BaseException) -> dict[str, Any]:
    response = getattr(error, "response", None)
    return response if isinstance(response, dict) else {}
