"""Looking devices up, and a page for each."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.base.errors import ClientManagerError, InvalidInputError
from clientmgr.sending.samples import Channel
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.operations import devices, mapping
from clientmgr_dashboard.operations.contacts import KnownContactRequest, known_contact
from clientmgr_dashboard.operations.devices import (
    ClientRequest,
    ContactRequest,
    DeviceDetail,
    DeviceRequest,
    DeviceRow,
    RevealRequest,
    TokenRequest,
    find_by_client,
    find_by_contact,
    find_by_token,
    reveal_device,
    show_device,
)
from clientmgr_dashboard.operations.interface import ContactNumber, CustomerNumber, Page, Text
from clientmgr_dashboard.operations.mapping import MappingRequest, explain_mapping
from clientmgr_dashboard.web.forms import from_form, from_query
from clientmgr_dashboard.web.handling import Site, as_parameters, get, post, see_other
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation, query


class LookUp(Struct, frozen=True, rename="camel"):
    """The form."""

    customer_id: CustomerNumber
    by: Literal["contact", "client", "token"]
    wanted: Annotated[Text, Meta(min_length=1)]


class Explain(Struct, frozen=True, rename="camel"):
    channel: Channel | None = None


async def look_up(site: Site, request: Request, visitor: Visitor) -> Response:
    if not request.query_params:
        return _found(site, request, None, {}, {})
    if "contactId" in request.query_params:
        contact = from_query(request, ContactRequest)
        filled = {"customerId": contact.customer_id, "by": "contact", "wanted": contact.contact_id}
        devices = await find_by_contact(site.context(), visitor, contact)
        ended = ""
        if not devices.items:
            of_contact = KnownContactRequest(contact.customer_id, contact.contact_id)
            known = await known_contact(site.context(), visitor, of_contact)
            ended = known.ended.sentence(contact.contact_id) if known.ended else ""
        return _found(site, request, devices, filled, as_parameters(contact), ended=ended)
    client = from_query(request, ClientRequest)
    named = {"customerId": client.customer_id, "by": "client", "wanted": client.client_id}
    return _found(site, request, await find_by_client(site.context(), visitor, client), named, as_parameters(client))


async def asked(site: Site, request: Request, visitor: Visitor) -> Response:
    """A contact or client id becomes part of the address, which can be kept; a token never does."""
    form = await from_form(request, LookUp)
    if form.by == "contact":
        # Checked before it gets into an address: what is not a number may be a token in the wrong field.
        try:
            contact_id = msgspec.convert(form.wanted, ContactNumber, strict=False)
        except msgspec.ValidationError:
            raise InvalidInputError("wanted", "a contact's id, which is a number", "something else") from None
        return see_other("/devices" + query({"customerId": form.customer_id, "contactId": contact_id}))
    if form.by == "client":
        return see_other("/devices" + query({"customerId": form.customer_id, "clientId": form.wanted}))
    page = await find_by_token(site.context(), visitor, TokenRequest(form.customer_id, form.wanted))
    return _found(site, request, page, {"customerId": form.customer_id, "by": "token", "wanted": ""}, {})


async def one(site: Site, request: Request, visitor: Visitor) -> Response:
    detail = await show_device(site.context(), visitor, from_query(request, DeviceRequest))
    return await _shown(site, request, visitor, detail)


async def reveal(site: Site, request: Request, visitor: Visitor) -> Response:
    detail = await reveal_device(site.context(), visitor, await from_form(request, RevealRequest))
    return await _shown(site, request, visitor, detail)


def _found(
    site: Site,
    request: Request,
    page: Page[DeviceRow] | None,
    filled: Mapping[str, object],
    parameters: Mapping[str, object],
    *,
    ended: str = "",
) -> Response:
    """`parameters`: of the address of the same list's other pages; empty where there is no such address."""
    return site.renderer.page(request, "devices.html", page=page, filled=filled, parameters=parameters, ended=ended)


async def _shown(site: Site, request: Request, visitor: Visitor, detail: DeviceDetail) -> Response:
    explained, problem = None, ""
    channel = from_query(request, Explain).channel
    if channel is not None and detail.contact_id is not None:
        wanted = MappingRequest(detail.customer_id, detail.application_code, detail.contact_id, channel)
        try:
            explained = await explain_mapping(site.context(), visitor, wanted)
        except ClientManagerError as error:
            problem = str(error)
    return site.renderer.page(
        request,
        "device.html",
        detail=detail,
        channel=channel or ("webpush" if detail.is_web else "push"),
        explained=explained,
        problem=problem,
    )


_LOOK_UP = get("/devices", look_up)

PAGE = DashboardPage(
    order=30,
    navigation=Navigation("Devices", "/devices"),
    routes=(
        _LOOK_UP,
        post("/devices", asked, form_on=_LOOK_UP, needs=Role.VIEWER),
        get("/devices/one", one),
        post("/devices/reveal", reveal),
    ),
    operations=(*devices.OPERATIONS, *mapping.OPERATIONS),
)
