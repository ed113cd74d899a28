"""Keys of the HTTP intake: a table, and forms to make, rotate and revoke one."""

from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.contracts.intake_keys import KeyKind
from clientmgr.tenants.intake_keys import NewKey
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations.intake_keys import (
    OPERATIONS,
    CreateKeyRequest,
    Days,
    Identifier,
    KeysRequest,
    RevokeKeyRequest,
    RotateKeyRequest,
    create_intake_key,
    list_intake_keys,
    revoke_intake_key,
    rotate_intake_key,
)
from clientmgr_dashboard.operations.interface import CustomerNumber, PageNumber
from clientmgr_dashboard.web.forms import from_form, from_query
from clientmgr_dashboard.web.handling import Site, as_parameters, get, post, see_other
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation

PER_PAGE = 50


class Shown(Struct, frozen=True, rename="camel"):
    """What the page's address says: whose keys, and which page of them."""

    customer_id: CustomerNumber | None = None
    page: PageNumber = 1


class Outcome(Struct, frozen=True):
    done: Literal["revoked", "unchanged"] | None = None


class CreateForm(Struct, frozen=True, rename="camel"):
    """As the operation's request, with the web pages in one field."""

    customer_id: CustomerNumber
    application_code: Identifier
    name: str = "default"
    kind: KeyKind = KeyKind.SERVER
    origins: Annotated[str, Meta(max_length=6000)] = ""
    days: Days = 0


async def keys(site: Site, request: Request, visitor: Visitor) -> Response:
    return await _page(site, request, visitor, from_query(request, Shown), done=from_query(request, Outcome).done)


async def create(site: Site, request: Request, visitor: Visitor) -> Response:
    form = await from_form(request, CreateForm)
    wanted = CreateKeyRequest(
        form.customer_id, form.application_code, form.name, form.kind, form.origins.split(), form.days
    )
    made = await create_intake_key(site.context(), visitor, wanted)
    return await _page(site, request, visitor, Shown(form.customer_id), made=made)


async def rotate(site: Site, request: Request, visitor: Visitor) -> Response:
    made = await rotate_intake_key(site.context(), visitor, await from_form(request, RotateKeyRequest))
    return await _page(site, request, visitor, Shown(), made=made)


async def revoke(site: Site, request: Request, visitor: Visitor) -> Response:
    done = await revoke_intake_key(site.context(), visitor, await from_form(request, RevokeKeyRequest))
    return see_other(f"/intake-keys?done={'revoked' if done.changed else 'unchanged'}")


async def _page(
    site: Site,
    request: Request,
    visitor: Visitor,
    shown: Shown,
    *,
    made: NewKey | None = None,
    done: str | None = None,
) -> Response:
    """A new key is in the answer to the form that made it: in no address, and in no other page."""
    found = await list_intake_keys(site.context(), visitor, KeysRequest(shown.customer_id, shown.page, PER_PAGE))
    return site.renderer.page(
        request, "intake_keys.html", keys=found, shown=shown, parameters=as_parameters(shown), made=made, done=done
    )


_TABLE = get("/intake-keys", keys)

PAGE = DashboardPage(
    order=55,
    navigation=Navigation("Intake keys", "/intake-keys"),
    routes=(
        _TABLE,
        post("/intake-keys", create, form_on=_TABLE),
        post("/intake-keys/rotate", rotate, form_on=_TABLE),
        post("/intake-keys/revoke", revoke, form_on=_TABLE),
    ),
    operations=OPERATIONS,
)
