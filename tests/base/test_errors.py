"""The one place that tells transient from permanent."""

from typing import Any

import google.api_core.exceptions
import grpc
import psycopg
import psycopg_pool
import pytest
import redis.exceptions

from clientmgr.base.errors import (
    ErrorKind,
    InvalidInputError,
    TenantUnavailableError,
    UnknownTenantError,
    classify,
    first_of,
    is_behind_the_database,
    is_throttling,
    is_transient,
)


def sql_error(sqlstate: str) -> psycopg.Error:
    return psycopg.errors.lookup(sqlstate)("boom")


@pytest.mark.parametrize("sqlstate", ["08006", "40001", "40P01", "53100", "53300", "57P01", "57014", "55P03", "25006"])
def test_the_database_asking_for_another_try_is_transient(sqlstate: str) -> None:
    assert classify(sql_error(sqlstate)) is ErrorKind.TRANSIENT


@pytest.mark.parametrize("sqlstate", ["22P02", "22003", "23505", "23503", "23514"])
def test_data_that_can_never_fit_is_permanent(sqlstate: str) -> None:
    assert classify(sql_error(sqlstate)) is ErrorKind.PERMANENT


@pytest.mark.parametrize("sqlstate", ["42P01", "42703", "55006", "XX000"])
def test_anything_else_from_the_database_is_unforeseen(sqlstate: str) -> None:
    assert classify(sql_error(sqlstate)) is ErrorKind.UNFORESEEN


@pytest.mark.parametrize(
    "text",
    [
        "failure on connection marked as essential: 127.0.0.1:7101",
        "server closed the connection unexpectedly\nCONTEXT:  while executing command on 127.0.0.1:7101",
    ],
)
def test_a_node_lost_behind_the_database_is_worth_another_try(text: str) -> None:
    lost = psycopg.errors.InternalError_(text)

    assert classify(lost) is ErrorKind.TRANSIENT
    assert all(is_behind_the_database(error) for error in (lost, sql_error("08006"), sql_error("57P01")))
    assert not any(is_behind_the_database(sql_error(state)) for state in ("XX000", "57014", "40001"))


class ThrottledByAws(Exception):
    response: dict[str, Any] = {"Error": {"Code": "ProvisionedThroughputExceededException"}}  # noqa: RUF012


class BadGatewayBeforeAws(Exception):
    response: dict[str, Any] = {"Error": {"Code": "502"}, "ResponseMetadata": {"HTTPStatusCode": 502}}  # noqa: RUF012


class RefusedByAws(Exception):
    response: dict[str, Any] = {  # noqa: RUF012
        "Error": {"Code": "AccessDeniedException"},
        "ResponseMetadata": {"HTTPStatusCode": 400},
    }


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("server closed the connection"),
        TimeoutError(),
        ConnectionResetError(),
        redis.exceptions.ConnectionError(),
        redis.exceptions.TimeoutError(),
        ThrottledByAws(),
        BadGatewayBeforeAws(),
        TenantUnavailableError("still activating"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_lost_connections_throttling_and_tenants_in_the_making_are_transient(error: Exception) -> None:
    assert classify(error) is ErrorKind.TRANSIENT


@pytest.mark.parametrize(
    "error",
    [
        InvalidInputError("x", "a number", "y"),
        UnknownTenantError("gone"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_invalid_messages_and_unknown_tenants_are_permanent(error: Exception) -> None:
    assert classify(error) is ErrorKind.PERMANENT


@pytest.mark.parametrize("error", [KeyError("x"), RefusedByAws()], ids=lambda error: type(error).__name__)
def test_a_bug_of_ours_is_unforeseen(error: Exception) -> None:
    assert classify(error) is ErrorKind.UNFORESEEN


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ServiceUnavailable", ErrorKind.TRANSIENT),
        ("ResourceExhausted", ErrorKind.TRANSIENT),
        ("Cancelled", ErrorKind.TRANSIENT),
        ("Unknown", ErrorKind.TRANSIENT),
        ("PermissionDenied", ErrorKind.UNFORESEEN),
        ("NotFound", ErrorKind.UNFORESEEN),
    ],
)
def test_google_errors_are_told_apart_by_their_status(name: str, kind: ErrorKind) -> None:
    assert classify(getattr(google.api_core.exceptions, name)("boom")) is kind


class GrpcError(Exception):
    """States its status as grpc's errors do."""

    def __init__(self, status: grpc.StatusCode) -> None:
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.CANCELLED, ErrorKind.TRANSIENT),
        (grpc.StatusCode.UNKNOWN, ErrorKind.TRANSIENT),
        (grpc.StatusCode.UNAVAILABLE, ErrorKind.TRANSIENT),
        (grpc.StatusCode.NOT_FOUND, ErrorKind.UNFORESEEN),
        (grpc.StatusCode.PERMISSION_DENIED, ErrorKind.UNFORESEEN),
    ],
)
def test_grpc_errors_are_told_apart_by_their_status(status: grpc.StatusCode, kind: ErrorKind) -> None:
    assert classify(GrpcError(status)) is kind


def test_repetitions_that_ran_out_of_time_are_transient() -> None:
    error = google.api_core.exceptions.RetryError("gave up", cause=None)
    assert is_transient(error)
    assert is_transient(psycopg_pool.PoolTimeout("no connection"))


def test_of_a_group_of_errors_the_first_is_reported() -> None:
    first = KeyError("first")
    group = BaseExceptionGroup("all", [ExceptionGroup("one loop", [first, KeyError("second")]), KeyError("third")])
    assert first_of(group) is first


def test_being_asked_too_much_is_told_from_other_trouble() -> None:
    errors = [ThrottledByAws(), BadGatewayBeforeAws(), RefusedByAws(), TimeoutError()]
    assert [is_throttling(error) for error in errors] == [True, False, False, False]
