"""What handlers of pages have in common: the context, the renderer, whose request it is, and who may make it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from clientmgr_dashboard.access.authentication import Authenticator, Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import ForbiddenError
from clientmgr_dashboard.problems import problem_of
from clientmgr_dashboard.web.rendering import Renderer


@dataclass(frozen=True)
class Site:
    """What handlers are made with."""

    context: Callable[[], Context]
    authenticator: Authenticator
    renderer: Renderer


Handler = Callable[[Site, Request, Visitor], Awaitable[Response]]
Answer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page's route and the role that it needs. Docs tell from it who may do what."""

    method: str
    path: str
    handler: Handler
    needs: Role

    def __call__(self, site: Site) -> Route:
        return Route(self.path, _guarded(site, self.handler, self.needs), methods=[self.method])


def get(path: str, handler: Handler, *, needs: Role = Role.VIEWER) -> PageRoute:
    return PageRoute("GET", path, handler, needs)


def post(path: str, handler: Handler, *, needs: Role = Role.OPERATOR) -> PageRoute:
    return PageRoute("POST", path, handler, needs)


def _guarded(site: Site, handler: Handler, needs: Role) -> Answer:
    async def answer(request: Request) -> Response:
        visitor: Visitor = request.state.visitor
        if not visitor.role.includes(needs):
            raise ForbiddenError(f"This needs the role {needs}; yours is {visitor.role}.")
        return await handler(site, request, visitor)

    return with_problem_page(site, answer)


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
