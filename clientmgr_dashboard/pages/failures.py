"""Messages that failed: grouped, chosen, confirmed, replayed, edited, dropped; and what became of them."""

from typing import Literal

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.base.errors import InvalidInputError, PermanentError
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.operations import failures as operations
from clientmgr_dashboard.operations.failure_types import FailureGroups, FailurePage
from clientmgr_dashboard.operations.failures import (
    ChosenFailures,
    EditRequest,
    FailureListRequest,
    FailureRequest,
    drop_failures,
    edit_failure,
    group_failures,
    list_failures,
    preview_failures,
    replay_failures,
    reveal_failure,
    show_failure,
    text_to_edit,
)
from clientmgr_dashboard.operations.interface import NotFoundError
from clientmgr_dashboard.web.forms import form_fields, from_form, from_query, query_of
from clientmgr_dashboard.web.handling import Site, as_parameters, get, post, see_other
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation, query

ACTIONS = ("replay", "drop", "replay-all", "drop-all")
SHARED_FOR_S = 1.5
"""However many people watch a list, the database is asked once in this time."""
OLD_NAMES = {"handled": "any"}
"""Of states, in links to the pages that were here before."""


class Done(Struct, frozen=True, rename="camel"):
    """What the form before this page did, as numbers only: a link must not be able to show a text of its own."""

    done: Literal["replayed", "dropped"] | None = None
    count: int = 0
    problems: int = 0


async def overview(site: Site, request: Request, visitor: Visitor) -> Response:
    return await _list(site, request, visitor, "failures.html")


async def live(site: Site, request: Request, visitor: Visitor) -> Response:
    """The part of the page that stays current."""
    return await _list(site, request, visitor, "failures_live.html", is_live=True)


async def _list(site: Site, request: Request, visitor: Visitor, template: str, *, is_live: bool = False) -> Response:
    context, wanted = site.context(), from_query(request, FailureListRequest)

    async def look() -> tuple[FailurePage, FailureGroups]:
        return await list_failures(context, visitor, wanted), await group_failures(context, visitor, wanted)

    # By role: viewers may not search in texts.
    shared = f"failures for a {visitor.role}: {wanted}"
    failures, groups = await context.shared.answer(shared, SHARED_FOR_S if is_live else 0.0, look)
    return site.renderer.page(
        request,
        template,
        failures=failures,
        groups=groups,
        wanted=wanted,
        parameters={name: item for name, item in as_parameters(wanted).items() if item is not None},
        done=from_query(request, Done),
    )


async def one(site: Site, request: Request, visitor: Visitor) -> Response:
    return await _one(site, request, visitor, "failure.html")


async def one_live(site: Site, request: Request, visitor: Visitor) -> Response:
    return await _one(site, request, visitor, "failure_live.html")


async def _one(site: Site, request: Request, visitor: Visitor, template: str) -> Response:
    found = await show_failure(site.context(), visitor, from_query(request, FailureRequest))
    return site.renderer.page(request, template, failure=found)


async def revealed(site: Site, request: Request, visitor: Visitor) -> Response:
    found = await reveal_failure(site.context(), visitor, from_query(request, FailureRequest))
    return site.renderer.page(request, "failure.html", failure=found)


async def edit(site: Site, request: Request, visitor: Visitor) -> Response:
    return await _editor(site, request, visitor)


async def save(site: Site, request: Request, visitor: Visitor) -> Response:
    """What is wrong with the message is said beside it, and what somebody wrote stays in the form."""
    ref = from_query(request, FailureRequest).ref
    fields = await form_fields(request)
    text, target = str(fields.get("text", "")), fields.get("target")
    wanted = msgspec.convert({"ref": ref, "text": text, "target": target}, EditRequest)
    try:
        done = await edit_failure(site.context(), visitor, wanted)
    except NotFoundError:
        raise
    except PermanentError as error:
        return await _editor(site, request, visitor, text=text, problem=str(error), target=wanted.target)
    return see_other(f"/failures/{done.ref}")


async def _editor(
    site: Site,
    request: Request,
    visitor: Visitor,
    *,
    text: str | None = None,
    problem: str = "",
    target: str | None = None,
) -> Response:
    wanted = from_query(request, FailureRequest)
    found = await show_failure(site.context(), visitor, wanted)
    return site.renderer.page(
        request,
        "failure_edit.html",
        status=400 if problem else 200,
        failure=found,
        text=await text_to_edit(site.context(), wanted) if text is None else text,
        problem=problem,
        target=target,
    )


async def confirm(site: Site, request: Request, visitor: Visitor) -> Response:
    fields = await form_fields(request)
    action = str(fields.get("action", ""))
    if action not in ACTIONS:
        raise InvalidInputError("action", "replay or drop", action)
    if action.endswith("-all"):
        fields.pop("ids", None)
        chosen = await from_form(request, ChosenFailures, ids=None, everything=True)
    else:
        chosen = msgspec.convert({"ids": fields.get("ids", [])}, ChosenFailures, strict=False)
    preview = await preview_failures(site.context(), visitor, chosen)
    bounded = msgspec.structs.replace(chosen, not_after=preview.not_after)
    return site.renderer.page(
        request,
        "confirm_failures.html",
        action=action.removesuffix("-all"),
        preview=preview,
        chosen={name: item for name, item in as_parameters(bounded).items() if name != "target"},
    )


async def replay(site: Site, request: Request, visitor: Visitor) -> Response:
    chosen = await from_form(request, ChosenFailures)
    result = await replay_failures(site.context(), visitor, chosen)
    problems = sum(bool(one.problem) for one in result.results)
    return see_other(_after(chosen, {"done": "replayed", "count": result.replayed, "problems": problems}))


async def drop(site: Site, request: Request, visitor: Visitor) -> Response:
    chosen = await from_form(request, ChosenFailures)
    result = await drop_failures(site.context(), visitor, chosen)
    return see_other("/failures" + query({"done": "dropped", "count": result.dropped}))


def _after(chosen: ChosenFailures, done: dict[str, object]) -> str:
    """Where to look after a replay: at the message, or at all that were replayed."""
    if chosen.ids and len(chosen.ids) == 1:
        return f"/failures/{chosen.ids[0]}"
    return "/failures" + query({"state": "replayed", **done})


async def old_list(_site: Site, request: Request, _visitor: Visitor) -> Response:
    """Links and bookmarks from before there was one page."""
    kept = {name: OLD_NAMES.get(text, text) for name, text in query_of(request).items()}
    return see_other("/failures" + query(kept))


async def old_letter(_site: Site, request: Request, _visitor: Visitor) -> Response:
    return see_other(f"/failures/d{request.path_params['id']}")


_LIST = get("/failures", overview)

PAGE = DashboardPage(
    order=35,
    navigation=Navigation("Failures", "/failures"),
    routes=(
        _LIST,
        get("/failures/live", live),
        post("/failures/confirm", confirm, form_on=_LIST),
        post("/failures/replay", replay),
        post("/failures/drop", drop),
        get("/failures/{ref}", one),
        get("/failures/{ref}/live", one_live),
        post("/failures/{ref}/reveal", revealed),
        get("/failures/{ref}/edit", edit, needs=Role.OPERATOR),
        post("/failures/{ref}/edit", save),
        get("/messages/dead-letters", old_list),
        get("/messages/dead-letters/{id:int}", old_letter),
        get("/messages/errors", old_list),
    ),
    operations=operations.OPERATIONS,
)
