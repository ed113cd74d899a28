"""What all pages have in common: the desk, the renderer, whose request it is, and what an operation may refuse."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.access.visitors import Doorkeeper, Visitor
from clientmgr_dashboard.context import Desk
from clientmgr_dashboard.pages.rendering import Renderer
from clientmgr_dashboard.problems import ForbiddenError, problem_of


@dataclass(frozen=True)
class Site:
    """What handlers are made with."""

    desk: Callable[[], Desk]
    doorkeeper: Doorkeeper
    renderer: Renderer


Handler = Callable[[Site, Request, Visitor], Awaitable[Response]]
Answer = Callable[[Request], Awaitable[Response]]


def get(path: str, handler: Handler) -> Callable[[Site], Route]:
    return lambda site: Route(path, _guarded(site, handler), methods=["GET"])


def post(path: str, handler: Handler, *, needs: Role = Role.OPERATOR) -> Callable[[Site], Route]:
    return lambda site: Route(path, _guarded(site, handler, needs), methods=["POST"])


def _guarded(site: Site, handler: Handler, needs: Role = Role.VIEWER) -> Answer:
    async def answer(request: Request) -> Response:
        visitor: Visitor = request.state.visitor
        if not visitor.role.includes(needs):
            raise ForbiddenError(f"This needs the role {needs}; yours is {visitor.role}.")
        return await handler(site, request, visitor)

    return telling_problems(site, answer)


def telling_problems(site: Site, answer: Answer) -> Answer:
    """Whatever goes wrong, the answer is a page that says so."""

    async def answer_or_problem(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as error:  # noqa: BLE001  # whatever it is
            return site.renderer.problem(request, problem_of(error, request))

    return answer_or_problem


def see_other(where: str) -> Response:
    """After a form: the next page is one that may be loaded again without doing anything again."""
    return RedirectResponse(where, 303)


def as_parameters(request: msgspec.Struct) -> dict[str, object]:
    """A request as what stands in its URL."""
    parameters: dict[str, object] = msgspec.to_builtins(request)
    return parameters
