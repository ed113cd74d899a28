"""Applications: what is configured for each, and a form to change it."""

from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations.applications import (
    OPERATIONS,
    ApplicationRequest,
    ApplicationsRequest,
    ConfigureRequest,
    configure_application,
    forget_application,
    list_configured,
)
from clientmgr_dashboard.operations.interface import CustomerNumber, PageNumber, Text
from clientmgr_dashboard.web.forms import from_form, from_query
from clientmgr_dashboard.web.handling import Site, as_parameters, get, post, see_other
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation

PER_PAGE = 50


class Shown(Struct, frozen=True, rename="camel"):
    """What the page's address says: whose applications, and which of them is in the form."""

    customer_id: CustomerNumber | None = None
    application_code: Text | None = None
    page: PageNumber = 1


class ConfigureForm(Struct, frozen=True, rename="camel"):
    """A browser leaves out what is empty: that is not configured then."""

    customer_id: CustomerNumber
    application_code: Text
    apple_topic: str | None = None
    web_origins: str = ""
    """Separated by spaces or lines."""
    default_language: str | None = None


class Outcome(Struct, frozen=True):
    done: Literal["changed", "unchanged"] | None = None


async def applications(site: Site, request: Request, visitor: Visitor) -> Response:
    shown = from_query(request, Shown)
    wanted = ApplicationsRequest(shown.customer_id, shown.page, PER_PAGE)
    found = await list_configured(site.context(), visitor, wanted)
    chosen = [one for one in found.items if shown.customer_id and one.application_code == shown.application_code]
    return site.renderer.page(
        request,
        "applications.html",
        found=found,
        edited=chosen[0] if chosen else None,
        shown=shown,
        parameters=as_parameters(shown),
        done=from_query(request, Outcome).done,
    )


async def configure(site: Site, request: Request, visitor: Visitor) -> Response:
    form = await from_form(request, ConfigureForm)
    wanted = ConfigureRequest(
        form.customer_id, form.application_code, form.apple_topic, form.web_origins.split(), form.default_language
    )
    return _answer((await configure_application(site.context(), visitor, wanted)).changed)


async def forget(site: Site, request: Request, visitor: Visitor) -> Response:
    return _answer(
        (await forget_application(site.context(), visitor, await from_form(request, ApplicationRequest))).changed
    )


def _answer(changed: bool) -> Response:
    return see_other(f"/applications?done={'changed' if changed else 'unchanged'}")


_TABLE = get("/applications", applications)

PAGE = DashboardPage(
    order=45,
    navigation=Navigation("Applications", "/applications"),
    routes=(
        _TABLE,
        post("/applications/configure", configure, form_on=_TABLE),
        post("/applications/remove", forget, form_on=_TABLE),
    ),
    operations=OPERATIONS,
)
