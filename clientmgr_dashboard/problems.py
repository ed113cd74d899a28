"""Errors as answers: the one place that turns an exception into a status, for pages and API."""

import http
from typing import Any, Final

import msgspec
import psycopg
from msgspec import Struct
from psycopg_pool import PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.base.errors import (
    ClientManagerError,
    ErrorKind,
    InvalidInputError,
    TransientError,
    UnknownTenantError,
    classify,
)
from clientmgr.base.logs import get_logger
from clientmgr_dashboard.operations.interface import ForbiddenError, NotFoundError

log = get_logger(__name__)

PROBLEM_JSON = "application/problem+json"


class Problem(Struct, frozen=True, omit_defaults=True):
    """RFC 9457."""

    title: str
    status: int
    detail: str = ""
    type: str = "about:blank"


def problem(status: int, detail: str = "") -> Problem:
    return Problem(http.HTTPStatus(status).phrase, status, detail)


def problem_of(error: Exception, request: Request) -> Problem:
    """What an error means to the person who asked. An unforeseen one is in the log, not in the answer."""
    known = _known(error)
    if known is not None:
        return known
    log.error("a request failed", method=request.method, path=request.url.path, exc_info=error)
    return problem(500, "Something went wrong; the log says what.")


# The first match counts.
_STATUS: Final = (
    (ForbiddenError, 403),
    ((NotFoundError, UnknownTenantError), 404),
    ((msgspec.ValidationError, msgspec.DecodeError, InvalidInputError), 400),
    (TransientError, 503),
    (ClientManagerError, 409),
)


def _known(error: Exception) -> Problem | None:
    if isinstance(error, HTTPException):
        return problem(error.status_code, error.detail)
    if isinstance(error, psycopg.errors.QueryCanceled):
        return problem(503, "This took too long. Narrow it down, or try again.")
    if isinstance(error, psycopg.Error | PoolTimeout) and classify(error) is ErrorKind.TRANSIENT:
        return problem(503, "The database does not answer.")
    return next((problem(status, str(error)) for kinds, status in _STATUS if isinstance(error, kinds)), None)


def problem_response(found: Problem, headers: dict[str, Any] | None = None) -> Response:
    if found.status == 401:
        # Not `Basic`: a browser would ask for a password in its own dialog, and keep it.
        headers = {**(headers or {}), "WWW-Authenticate": 'Session realm="dashboard"'}
    return Response(msgspec.json.encode(found), found.status, headers=headers, media_type=PROBLEM_JSON)
