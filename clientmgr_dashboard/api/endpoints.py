"""The operations over HTTP: request in, JSON out, or a problem document."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from clientmgr_dashboard.access.authentication import Authenticator, Visitor
from clientmgr_dashboard.access.dashboard_door import API
from clientmgr_dashboard.api.openapi import openapi_document
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import ForbiddenError, Operation
from clientmgr_dashboard.problems import problem, problem_of, problem_response
from clientmgr_dashboard.web.forms import json_of, query_of

PREFIX = f"{API}v1"
JSON = "application/json"
EVERY_METHOD = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
"""We answer the methods that an operation does not have ourselves, with a problem document."""


class SessionInfo(msgspec.Struct, frozen=True, rename="camel"):
    """Who you are here."""

    name: str
    role: str
    csrf_token: str | None
    """To be sent as X-CSRF-Token with every POST; null: with name and password in each request it is not needed."""


def api_routes(
    operations: Sequence[Operation], context: Callable[[], Context], authenticator: Authenticator
) -> list[Route]:
    document = msgspec.json.encode(openapi_document(operations, PREFIX, SessionInfo))

    async def openapi(_request: Request) -> Response:
        return Response(document, media_type=JSON)

    async def session(request: Request) -> Response:
        visitor = visitor_of(request)
        token = None if visitor.session is None else authenticator.sessions.csrf_token(visitor.session)
        return _json(SessionInfo(visitor.name, str(visitor.role), token))

    async def nowhere(_request: Request) -> Response:
        return problem_response(problem(404, f"There is nothing here; {PREFIX}/openapi.json lists what there is."))

    routes = [Route(f"{PREFIX}/openapi.json", openapi), Route(f"{PREFIX}/session", session)]
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        methods = by_path.setdefault(operation.path, {})
        if operation.method in methods:
            raise ValueError(f"two operations are {operation.method} {operation.path}")
        methods[operation.method] = operation
    # Fixed paths come before those with a parameter: `reveal` in `/dead-letters/reveal` is no id.
    for path in sorted(by_path, key=lambda path: "{" in path):
        routes.append(Route(f"{PREFIX}{path}", _endpoint(context, by_path[path]), methods=EVERY_METHOD))
    return [*routes, Route(f"{API}{{anything:path}}", nowhere, methods=EVERY_METHOD)]


def _endpoint(
    context: Callable[[], Context], operations: dict[str, Operation]
) -> Callable[[Request], Awaitable[Response]]:
    allowed = {"Allow": ", ".join(sorted({*operations, *({"HEAD"} if "GET" in operations else ())}))}

    async def answer(request: Request) -> Response:
        operation = operations.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            return problem_response(problem(405, f"Only {allowed['Allow']}."), allowed)
        try:
            visitor = visitor_of(request)
            if operation.method == "POST" and not _is_json(request):
                return problem_response(problem(415, f"Expected {JSON}."))
            ensure_allowed(visitor, operation)
            return _json(await operation.run(context(), visitor, await _read(request, operation)))
        except Exception as error:  # noqa: BLE001  # whatever it is, the answer is a problem document
            return problem_response(problem_of(error, request))

    return answer


def visitor_of(request: Request) -> Visitor:
    visitor: Visitor = request.state.visitor
    return visitor


def ensure_allowed(visitor: Visitor, operation: Operation) -> None:
    if not visitor.role.includes(operation.needs):
        raise ForbiddenError(f"This needs the role {operation.needs}; yours is {visitor.role}.")


async def _read(request: Request, operation: Operation) -> Any:
    if operation.method == "POST":
        return msgspec.convert(json_of(await request.body()), operation.request)
    given = {**query_of(request), **request.path_params}
    wanted = msgspec.convert(given, operation.request, strict=False)
    for field in msgspec.structs.fields(operation.request):
        # msgspec reads the text "null" as None: the filter that somebody sent would be ignored.
        if field.encode_name in given and getattr(wanted, field.name) is None:
            raise msgspec.ValidationError(f"Expected a value, got `null` - at `$.{field.encode_name}`")
    return wanted


def _is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == JSON


def _json(answer: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(answer), media_type=JSON)
