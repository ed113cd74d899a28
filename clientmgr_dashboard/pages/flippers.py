"""Flippers and exclusions: what is set, and forms to change it."""

from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.tenants.flippers import Flipper
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations.flippers import (
    OPERATIONS,
    ExcludeRequest,
    ExclusionsRequest,
    FlippersRequest,
    FlipRequest,
    IncludeRequest,
    change_flipper,
    exclude_customer,
    include_customer,
    list_excluded,
    list_flippers,
)
from clientmgr_dashboard.operations.interface import CustomerNumber, PageNumber
from clientmgr_dashboard.web.forms import from_form, from_query
from clientmgr_dashboard.web.handling import Site, as_parameters, get, post, see_other
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation

MEANING = {
    Flipper.USE_POSTGRES_DEVICE_MAPPER: (
        "The device mapper reads devices from PostgreSQL first. Off: from DynamoDB alone."
    ),
    Flipper.CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER: (
        "The device mapper does not ask DynamoDB for contacts that have no device in PostgreSQL. "
        "With both on, a tenant has left DynamoDB, and its orphans are deleted."
    ),
}
PER_PAGE = 50
MOST_FOR_ALL = 500
"""More than there are flippers, so that all of them fit on one page."""
STATES = {"on": True, "off": False, "unset": None}


class FlipForm(Struct, frozen=True, rename="camel"):
    name: Flipper
    state: Literal["on", "off", "unset"]
    customer_id: CustomerNumber | None = None


class Shown(Struct, frozen=True, rename="camel"):
    """What the page's address says: whose settings, and which page of each table."""

    customer_id: CustomerNumber | None = None
    page: PageNumber = 1
    exclusions_page: PageNumber = 1


class Outcome(Struct, frozen=True):
    done: Literal["changed", "unchanged"] | None = None


async def flippers(site: Site, request: Request, visitor: Visitor) -> Response:
    context, shown = site.context(), from_query(request, Shown)
    # Read separately: else a setting for all could be on another page of the table, and look as if it were not set.
    for_all = await list_flippers(context, visitor, FlippersRequest(scope="all", per_page=MOST_FOR_ALL))
    own = await list_flippers(context, visitor, FlippersRequest(shown.customer_id, "own", shown.page, PER_PAGE))
    exclusions = await list_excluded(
        context, visitor, ExclusionsRequest(shown.customer_id, shown.exclusions_page, PER_PAGE)
    )
    return site.renderer.page(
        request,
        "flippers.html",
        for_all=for_all.items,
        own=own,
        meaning={str(flipper): text for flipper, text in MEANING.items()},
        exclusions=exclusions,
        shown=shown,
        parameters=as_parameters(shown),
        done=from_query(request, Outcome).done,
    )


async def flip(site: Site, request: Request, visitor: Visitor) -> Response:
    form = await from_form(request, FlipForm)
    wanted = FlipRequest(form.name, form.customer_id, STATES[form.state])
    return _answer((await change_flipper(site.context(), visitor, wanted)).changed)


async def exclude(site: Site, request: Request, visitor: Visitor) -> Response:
    return _answer((await exclude_customer(site.context(), visitor, await from_form(request, ExcludeRequest))).changed)


async def include(site: Site, request: Request, visitor: Visitor) -> Response:
    return _answer((await include_customer(site.context(), visitor, await from_form(request, IncludeRequest))).changed)


def _answer(changed: bool) -> Response:
    return see_other(f"/switches?done={'changed' if changed else 'unchanged'}")


# The addresses are older than the word: bookmarks and scripts know the page as /switches.
PAGE = DashboardPage(
    order=50,
    navigation=Navigation("Flippers", "/switches"),
    routes=(
        get("/switches", flippers),
        post("/switches/flippers", flip),
        post("/switches/exclusions", exclude),
        post("/switches/exclusions/remove", include),
    ),
    operations=OPERATIONS,
)
