"""What handlers of pages have in common: the context, the renderer, whose request it is, and who may make it."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from clientmgr.base.errors import ClientManagerError
from clientmgr_dashboard.access.authentication import Authenticator, Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import ForbiddenError
from clientmgr_dashboard.problems import problem_of
from clientmgr_dashboard.web.refusals import refusal_of
from clientmgr_dashboard.web.rendering import Renderer


@dataclass(frozen=True)
class Site:
    """What handlers are made with."""

    context: Callable[[], Context]
    authenticator: Authenticator
    renderer: Renderer


_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
Handler = Callable[[Site, Request, Visitor], Awaitable[Response]]
Answer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page's route and the role that it needs. Docs tell from it who may do what."""

    method: str
    path: str
    handler: Handler
    needs: Role
    form_on: "PageRoute | None" = None
    """The page with the form, which is shown again where the form is refused."""

    def __call__(self, site: Site) -> Route:
        return Route(self.path, _guarded(site, self), methods=[self.method])


def get(path: str, handler: Handler, *, needs: Role = Role.VIEWER) -> PageRoute:
    return PageRoute("GET", path, handler, needs)


def post(path: str, handler: Handler, *, form_on: PageRoute | None = None, needs: Role = Role.OPERATOR) -> PageRoute:
    return PageRoute("POST", path, handler, needs, form_on)


def _guarded(site: Site, route: PageRoute) -> Answer:
    async def answer(request: Request) -> Response:
        visitor: Visitor = request.state.visitor
        if not visitor.role.includes(route.needs):
            raise ForbiddenError(f"This needs the role {route.needs}; yours is {visitor.role}.")
        try:
            return await route.handler(site, request, visitor)
        except Exception as error:
            again = await _form_again(site, request, visitor, route, error)
            if again is None:
                raise
            return again

    return with_problem_page(site, answer)


async def _form_again(
    site: Site, request: Request, visitor: Visitor, route: PageRoute, error: Exception
) -> Response | None:
    """The page of the form that was refused, which says so; None where there is no such page."""
    page = route.form_on or (route if route.method == "GET" else None)
    refusal = None if page is None else await refusal_of(error, request)
    if page is None or refusal is None:
        return None
    request.state.refusal = refusal
    path = _PARAMETER.sub(lambda named: str(request.path_params[named[1]]), page.path)
    for query in refusal.queries():
        scope = {**request.scope, "method": "GET", "path": path, "query_string": query}
        try:
            answer = await page.handler(site, Request(scope, request.receive), visitor)
        except (ClientManagerError, msgspec.ValidationError):
            continue
        answer.status_code = problem_of(error, request).status
        return answer
    return None


def with_problem_page(site: Site, answer: Answer) -> Answer:
    """If anything goes wrong, the answer is a page that says what."""

    async def answer_or_problem(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as error:  # noqa: BLE001  # whatever it is
            return site.renderer.problem(request, problem_of(error, request))

    return answer_or_problem


def see_other(where: str) -> Response:
    """After a form: send the browser to a page that can be reloaded without repeating the action."""
    return RedirectResponse(where, 303)


def as_parameters(request: msgspec.Struct) -> dict[str, object]:
    """A request as the parameters of its URL."""
    parameters: dict[str, object] = msgspec.to_builtins(request)
    return parameters
