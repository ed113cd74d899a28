"""The application: pages, API and files behind the guard. What pages there are, `pages/` says."""

import asyncio
import functools
import hashlib
import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

import psycopg
from psycopg_pool import PoolTimeout
from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from clientmgr.audit.log import PLATFORM, AuditEntry
from clientmgr.base.database import Database
from clientmgr.base.logs import get_logger
from clientmgr.base.metrics_server import PLAIN_TEXT
from clientmgr.base.settings import Settings
from clientmgr_dashboard.access.attempts import FailureReport
from clientmgr_dashboard.access.authentication import Authenticator
from clientmgr_dashboard.access.dashboard_door import API, DashboardDoor
from clientmgr_dashboard.access.guard import Guard
from clientmgr_dashboard.api.endpoints import api_routes
from clientmgr_dashboard.context import Context, opened_context
from clientmgr_dashboard.metrics import Measured
from clientmgr_dashboard.pages import find_pages
from clientmgr_dashboard.problems import problem, problem_response
from clientmgr_dashboard.web.handling import Site
from clientmgr_dashboard.web.rendering import Renderer

log = get_logger(__name__)

STATIC = ("dashboard.css", "dashboard.js", "theme.js", "icon.svg")


class _Id(IntegerConvertor):
    """An id in a path. Python refuses to read a number of thousands of digits."""

    regex = "[0-9]{1,18}"


register_url_convertor("int", _Id())


def dashboard(settings: Settings, port: int) -> ASGIApp:
    """The whole application. Its context is open while it runs (ASGI lifespan)."""
    authenticator = Authenticator(settings)
    pages = find_pages()
    renderer = Renderer(authenticator, [page.navigation for page in pages if page.navigation])
    opened: list[Context] = []

    def context() -> Context:
        return opened[0]

    def refuse(request: Request, status: int, detail: str) -> Response:
        found = problem(status, detail)
        return problem_response(found) if _is_api(request) else renderer.problem(request, found)

    async def unknown(request: Request, _error: Exception) -> Response:
        return refuse(request, 404, "There is no such page.")

    async def wrong_method(request: Request, _error: Exception) -> Response:
        return refuse(request, 405, "This page does not take that method.")

    async def health(_request: Request) -> Response:
        try:
            await context().read(lambda connection: connection.execute("SELECT 1"))
        except (psycopg.Error, PoolTimeout):
            return PlainTextResponse("the database does not answer", 503)
        return PlainTextResponse("ok")

    def report(failure: FailureReport) -> None:
        """In the background: a database that is away must not change the answer to a wrong password."""
        entry = AuditEntry(PLATFORM, "dashboard", "dashboard.sign-in-failed", "refused", details=failure.details)
        task = asyncio.create_task(_record(context(), entry))
        reporting.add(task)
        task.add_done_callback(reporting.discard)

    reporting: set[asyncio.Task[None]] = set()
    authenticator.report = report

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        database = Database.from_settings(settings)
        async with opened_context(settings, database) as ready, authenticator.watching(database):
            opened.append(ready)
            yield
            opened.clear()

    site = Site(context, authenticator, renderer)
    routes = [
        Route("/healthz", health),
        *(Route(f"/static/{name}", functools.partial(_file, name)) for name in STATIC),
        *(make(site) for page in pages for make in page.routes),
        *api_routes([operation for page in pages for operation in page.operations], context, authenticator),
    ]
    app = Starlette(routes=routes, exception_handlers={404: unknown, 405: wrong_method}, lifespan=lifespan)
    door = DashboardDoor(settings, port, authenticator, refuse)
    return Measured(Guard(app, door=door, authenticator=authenticator), routes)


async def _record(context: Context, entry: AuditEntry) -> None:
    try:
        await context.record(entry)
    except Exception as error:  # whatever it is, the log says so
        log.error("wrong passwords are not in the audit log", exc_info=error, **entry.details)


def _is_api(request: Request) -> bool:
    return request.url.path.startswith(API)


async def _file(name: str, request: Request) -> Response:
    contents, digest = _contents(name)
    headers = {"Cache-Control": "no-cache", "ETag": digest}
    if request.headers.get("if-none-match") == digest:
        return Response(status_code=304, headers=headers)
    return Response(contents, media_type=mimetypes.guess_type(name)[0] or PLAIN_TEXT, headers=headers)


@functools.cache
def _contents(name: str) -> tuple[bytes, str]:
    """A static file and its ETag."""
    contents = (files("clientmgr_dashboard") / "static" / name).read_bytes()
    return contents, f'"{hashlib.sha256(contents).hexdigest()[:16]}"'
