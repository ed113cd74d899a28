"""Topics, their subscriptions and lag; what a topic has; pausing a subscription. What failed has a page of its own."""

from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.operations import topics
from clientmgr_dashboard.operations.interface import NotFoundError, SearchText
from clientmgr_dashboard.operations.topics import (
    MessagesRequest,
    PauseRequest,
    ResumeRequest,
    TopicsRequest,
    browse_topic,
    list_topics,
    pause_subscription,
    resume_subscription,
)
from clientmgr_dashboard.web.forms import from_form, from_query
from clientmgr_dashboard.web.handling import Site, as_parameters, get, post, see_other
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation


class Outcome(Struct, frozen=True):
    done: Literal["paused", "resumed", "unchanged"] | None = None


class Asked(Struct, frozen=True):
    subscription: SearchText


async def log_topics(site: Site, request: Request, visitor: Visitor) -> Response:
    page = await list_topics(site.context(), visitor, from_query(request, TopicsRequest))
    return site.renderer.page(request, "topics.html", page=page, done=from_query(request, Outcome).done)


async def topic(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = from_query(request, MessagesRequest)
    messages = await browse_topic(site.context(), visitor, wanted)
    parameters = {name: item for name, item in as_parameters(wanted).items() if item is not None}
    return site.renderer.page(request, "topic.html", messages=messages, wanted=wanted, parameters=parameters)


async def ask(site: Site, request: Request, visitor: Visitor) -> Response:
    """What pausing would keep waiting."""
    name = from_query(request, Asked).subscription
    found = await list_topics(site.context(), visitor, TopicsRequest(per_page=500))
    for one in found.items:
        for reader in one.readers:
            if reader.subscription == name and not reader.is_gone:
                return site.renderer.page(request, "confirm_pause.html", topic=one, reader=reader)
    raise NotFoundError(f"subscription {name} does not exist")


async def pause(site: Site, request: Request, visitor: Visitor) -> Response:
    done = await pause_subscription(site.context(), visitor, await from_form(request, PauseRequest))
    return see_other(f"/messages?done={'paused' if done.changed else 'unchanged'}")


async def resume(site: Site, request: Request, visitor: Visitor) -> Response:
    done = await resume_subscription(site.context(), visitor, await from_form(request, ResumeRequest))
    return see_other(f"/messages?done={'resumed' if done.changed else 'unchanged'}")


_TOPICS = get("/messages", log_topics)
_ASK = get("/messages/pause", ask, needs=Role.OPERATOR)

PAGE = DashboardPage(
    order=40,
    navigation=Navigation("Messages", "/messages"),
    routes=(
        _TOPICS,
        get("/messages/topic", topic),
        _ASK,
        post("/messages/pause", pause, form_on=_ASK),
        post("/messages/resume", resume, form_on=_TOPICS),
    ),
    operations=topics.OPERATIONS,
)
