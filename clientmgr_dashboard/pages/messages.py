"""Topics and lag; dead letters and error topics, and what to do about them: chosen, confirmed, done."""

from typing import Literal

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.base.errors import InvalidInputError
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations import dead_letters, error_messages, topics
from clientmgr_dashboard.operations.dead_letters import (
    ChosenLetters,
    LetterRequest,
    LettersRequest,
    drop_letters,
    list_letters,
    preview_letters,
    replay_letters,
    reveal_letter,
    show_letter,
)
from clientmgr_dashboard.operations.error_messages import (
    DropErrorsRequest,
    ErrorMessagesRequest,
    ErrorTopicsRequest,
    ReplayErrorsRequest,
    drop_error_messages,
    error_targets,
    list_error_messages,
    list_error_topics,
    replay_error_messages,
)
from clientmgr_dashboard.operations.topics import TopicsRequest, list_topics
from clientmgr_dashboard.web.forms import form_fields, from_form, from_query
from clientmgr_dashboard.web.handling import Site, as_parameters, get, post, see_other
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation, query


class Done(Struct, frozen=True, rename="camel"):
    """What the form before this page did, as numbers only: a link must not be able to show a text of its own."""

    done: Literal["replayed", "dropped"] | None = None
    count: int = 0
    problems: int = 0


async def log_topics(site: Site, request: Request, visitor: Visitor) -> Response:
    page = await list_topics(site.context(), visitor, from_query(request, TopicsRequest))
    return site.renderer.page(request, "topics.html", page=page)


async def letters(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = from_query(request, LettersRequest)
    found = await list_letters(site.context(), visitor, wanted)
    return site.renderer.page(
        request,
        "dead_letters.html",
        letters=found,
        wanted=wanted,
        parameters=as_parameters(wanted),
        done=from_query(request, Done),
    )


async def letter(site: Site, request: Request, visitor: Visitor) -> Response:
    found = await show_letter(site.context(), visitor, from_query(request, LetterRequest))
    return site.renderer.page(request, "dead_letter.html", letter=found)


async def letter_revealed(site: Site, request: Request, visitor: Visitor) -> Response:
    found = await reveal_letter(site.context(), visitor, from_query(request, LetterRequest))
    return site.renderer.page(request, "dead_letter.html", letter=found)


async def confirm_letters(site: Site, request: Request, visitor: Visitor) -> Response:
    fields = await form_fields(request)
    action = _action(fields)
    if action.endswith("-all"):
        fields.pop("ids", None)
        chosen = await from_form(request, ChosenLetters, ids=None, everything=True)
    else:
        chosen = msgspec.convert({"ids": fields.get("ids", [])}, ChosenLetters, strict=False)
    preview = await preview_letters(site.context(), visitor, chosen)
    bounded = msgspec.structs.replace(chosen, newest_id=preview.newest_id or None)
    return site.renderer.page(
        request,
        "confirm_letters.html",
        action=action.removesuffix("-all"),
        preview=preview,
        chosen=as_parameters(bounded),
    )


async def replay(site: Site, request: Request, visitor: Visitor) -> Response:
    result = await replay_letters(site.context(), visitor, await from_form(request, ChosenLetters))
    problems = sum(bool(one.problem) for one in result.results)
    return see_other(
        "/messages/dead-letters" + query({"done": "replayed", "count": result.replayed, "problems": problems})
    )


async def drop(site: Site, request: Request, visitor: Visitor) -> Response:
    result = await drop_letters(site.context(), visitor, await from_form(request, ChosenLetters))
    return see_other("/messages/dead-letters" + query({"done": "dropped", "count": result.dropped}))


async def errors(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = from_query(request, ErrorMessagesRequest)
    found = await list_error_messages(site.context(), visitor, wanted)
    counted = await list_error_topics(site.context(), visitor, ErrorTopicsRequest())
    return site.renderer.page(
        request,
        "errors.html",
        messages=found,
        topics=counted.items,
        wanted=wanted,
        parameters=as_parameters(wanted),
        done=from_query(request, Done),
    )


async def confirm_errors(site: Site, request: Request, _visitor: Visitor) -> Response:
    action = _action(await form_fields(request))
    chosen = await from_form(request, DropErrorsRequest)
    return site.renderer.page(
        request,
        "confirm_errors.html",
        action=action,
        chosen=chosen,
        targets=await error_targets(site.context(), chosen.topic),
    )


async def replay_errors(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = await from_form(request, ReplayErrorsRequest)
    result = await replay_error_messages(site.context(), visitor, wanted)
    return see_other("/messages/errors" + query({"topic": wanted.topic, "done": "replayed", "count": result.handled}))


async def drop_errors(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = await from_form(request, DropErrorsRequest)
    result = await drop_error_messages(site.context(), visitor, wanted)
    return see_other("/messages/errors" + query({"topic": wanted.topic, "done": "dropped", "count": result.handled}))


def _action(fields: dict[str, object]) -> str:
    action = str(fields.get("action", ""))
    if action not in {"replay", "drop", "replay-all", "drop-all"}:
        raise InvalidInputError("action", "replay or drop", action)
    return action


PAGE = DashboardPage(
    order=40,
    navigation=Navigation("Messages", "/messages"),
    routes=(
        get("/messages", log_topics),
        get("/messages/dead-letters", letters),
        get("/messages/dead-letters/{id:int}", letter),
        post("/messages/dead-letters/{id:int}/reveal", letter_revealed),
        post("/messages/dead-letters/confirm", confirm_letters),
        post("/messages/dead-letters/replay", replay),
        post("/messages/dead-letters/drop", drop),
        get("/messages/errors", errors),
        post("/messages/errors/confirm", confirm_errors),
        post("/messages/errors/replay", replay_errors),
        post("/messages/errors/drop", drop_errors),
    ),
    operations=(*topics.OPERATIONS, *dead_letters.OPERATIONS, *error_messages.OPERATIONS),
)
