"""Flippers and exclusions: what is set, and forms to change it."""

from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.tenants.flippers import Flipper
from clientmgr_dashboard.access.visitors import Visitor
from clientmgr_dashboard.operations.interface import CustomerNumber, PageNumber
from clientmgr_dashboard.operations.switches import (
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
from clientmgr_dashboard.pages.forms import from_form, from_query
from clientmgr_dashboard.pages.handling import Site, as_parameters, get, post, see_other

MEANING = {
    Flipper.USE_POSTGRES_DEVICE_MAPPER: (
        "The device mapper reads devices from PostgreSQL first. Off: from DynamoDB alone."
    ),
    Flipper.CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER: (
        "It does not ask DynamoDB for contacts that have no device in PostgreSQL."
    ),
}
PER_PAGE = 50
MOST_FOR_ALL = 500
"""More than all names that there ever were."""
STATES = {"on": True, "off": False, "unset": None}


class FlipForm(Struct, frozen=True, rename="camel"):
    name: Flipper
    state: Literal["on", "off", "unset"]
    customer_id: CustomerNumber | None = None


class Shown(Struct, frozen=True, rename="camel"):
    """What the page's address says: whose settings, and where in each table somebody is."""

    customer_id: CustomerNumber | None = None
    page: PageNumber = 1
    exclusions_page: PageNumber = 1


class Told(Struct, frozen=True):
    done: Literal["changed", "unchanged"] | None = None


async def switches(site: Site, request: Request, visitor: Visitor) -> Response:
    desk, shown = site.desk(), from_query(request, Shown)
    # By themselves: a page of tenants' own settings must not make one for all look as if it were not set.
    for_all = await list_flippers(desk, visitor, FlippersRequest(scope="all", per_page=MOST_FOR_ALL))
    own = await list_flippers(desk, visitor, FlippersRequest(shown.customer_id, "own", shown.page, PER_PAGE))
    exclusions = await list_excluded(
        desk, visitor, ExclusionsRequest(shown.customer_id, shown.exclusions_page, PER_PAGE)
    )
    return site.renderer.page(
        request,
        "switches.html",
        for_all=for_all.items,
        own=own,
        meaning={str(flipper): text for flipper, text in MEANING.items()},
        exclusions=exclusions,
        shown=shown,
        parameters=as_parameters(shown),
        done=from_query(request, Told).done,
    )


async def flip(site: Site, request: Request, visitor: Visitor) -> Response:
    form = await from_form(request, FlipForm)
    wanted = FlipRequest(form.name, form.customer_id, STATES[form.state])
    return _told((await change_flipper(site.desk(), visitor, wanted)).changed)


async def exclude(site: Site, request: Request, visitor: Visitor) -> Response:
    return _told((await exclude_customer(site.desk(), visitor, await from_form(request, ExcludeRequest))).changed)


async def include(site: Site, request: Request, visitor: Visitor) -> Response:
    return _told((await include_customer(site.desk(), visitor, await from_form(request, IncludeRequest))).changed)


def _told(changed: bool) -> Response:
    return see_other(f"/switches?done={'changed' if changed else 'unchanged'}")


ROUTES = (
    get("/switches", switches),
    post("/switches/flippers", flip),
    post("/switches/exclusions", exclude),
    post("/switches/exclusions/remove", include),
)
