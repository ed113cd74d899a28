"""Flippers and exclusions: what is set, and forms to change it."""

from dataclasses import dataclass
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
    FlipForAllRequest,
    FlippersRequest,
    FlipRequest,
    IncludeRequest,
    change_flipper,
    exclude_customer,
    include_customer,
    list_excluded,
    list_flippers,
    preview_flip,
)
from clientmgr_dashboard.operations.interface import CustomerNumber, PageNumber
from clientmgr_dashboard.web.forms import from_form, from_query
from clientmgr_dashboard.web.handling import Site, as_parameters, get, post, see_other
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation


@dataclass(frozen=True, slots=True)
class Meaning:
    """A flipper in words."""

    title: str
    on: str
    off: str


MEANING = {
    Flipper.USE_POSTGRES_DEVICE_MAPPER: Meaning(
        "Read devices from PostgreSQL",
        "The device mapper reads devices from PostgreSQL first.",
        "The device mapper reads devices from DynamoDB alone.",
    ),
    Flipper.CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER: Meaning(
        "Do not fall back to DynamoDB",
        "Contacts without a device in PostgreSQL get no message. With the other flipper on too, a tenant has left "
        "DynamoDB, and its orphans are deleted.",
        "For contacts without a device in PostgreSQL the device mapper asks DynamoDB.",
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
    agreed: bool = False
    """Somebody has seen what a change for all tenants does. One tenant's is done without asking."""


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
        for_each={one.name: one for one in for_all.items},
        exclusions=exclusions,
        shown=shown,
        parameters=as_parameters(shown),
        done=from_query(request, Outcome).done,
    )


async def flip(site: Site, request: Request, visitor: Visitor) -> Response:
    form = await from_form(request, FlipForm)
    enabled = STATES[form.state]
    if form.customer_id is None and not form.agreed:
        preview = await preview_flip(site.context(), visitor, FlipForAllRequest(form.name, enabled))
        meaning = MEANING[form.name]
        return site.renderer.page(request, "confirm_flip.html", form=form, preview=preview, meaning=meaning)
    wanted = FlipRequest(form.name, form.customer_id, enabled)
    return _answer((await change_flipper(site.context(), visitor, wanted)).changed)


async def exclude(site: Site, request: Request, visitor: Visitor) -> Response:
    return _answer((await exclude_customer(site.context(), visitor, await from_form(request, ExcludeRequest))).changed)


async def include(site: Site, request: Request, visitor: Visitor) -> Response:
    return _answer((await include_customer(site.context(), visitor, await from_form(request, IncludeRequest))).changed)


def _answer(changed: bool) -> Response:
    return see_other(f"/switches?done={'changed' if changed else 'unchanged'}")


_PAGE = get("/switches", flippers)

# The addresses are older than the word: bookmarks and scripts know the page as /switches.
PAGE = DashboardPage(
    order=50,
    navigation=Navigation("Flippers", "/switches"),
    routes=(
        _PAGE,
        post("/switches/flippers", flip, form_on=_PAGE),
        post("/switches/exclusions", exclude, form_on=_PAGE),
        post("/switches/exclusions/remove", include, form_on=_PAGE),
    ),
    operations=OPERATIONS,
)
