"""A contact: what is known of it, and the forms that erase it, export what is kept, and prove that nothing is left."""

import base64
import binascii

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.base.errors import InvalidInputError
from clientmgr.erasure.report import as_text, check
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations import contacts
from clientmgr_dashboard.operations.contacts import (
    EraseRequest,
    ExportRequest,
    KnownContactRequest,
    ProveRequest,
    erase_contact,
    exported_text,
    known_contact,
    prove_erasure,
)
from clientmgr_dashboard.operations.interface import ContactNumber, CustomerNumber, SearchText
from clientmgr_dashboard.web.forms import from_form, from_query
from clientmgr_dashboard.web.handling import Site, get, post, see_other
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation, query


class Asked(Struct, frozen=True, rename="camel"):
    """The address: whose contact, and whether its deletion was just published."""

    erasing: bool = False


class ProveForm(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber
    contact_id: ContactNumber
    search: SearchText = ""


class ProofFile(Struct, frozen=True, rename="camel"):
    """A report that we made, on its way through the browser: in base64, or the browser would change its line ends."""

    report: str


async def contact(site: Site, request: Request, visitor: Visitor) -> Response:
    if "contactId" not in request.query_params:
        return site.renderer.page(request, "contacts.html", known=None, erasing=False)
    known = await known_contact(site.context(), visitor, from_query(request, KnownContactRequest))
    return site.renderer.page(request, "contacts.html", known=known, erasing=from_query(request, Asked).erasing)


async def erase(site: Site, request: Request, visitor: Visitor) -> Response:
    done = await erase_contact(site.context(), visitor, await from_form(request, EraseRequest))
    where = {"customerId": done.customer_id, "contactId": done.contact_id, "erasing": "true"}
    return see_other("/contacts" + query(where))


async def export(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = await from_form(request, ExportRequest)
    text = await exported_text(site.context(), visitor, wanted)
    return _file(text, f"contact-{wanted.customer_id}-{wanted.contact_id}.json")


async def prove(site: Site, request: Request, visitor: Visitor) -> Response:
    form = await from_form(request, ProveForm)
    wanted = ProveRequest(form.customer_id, form.contact_id, [form.search] if form.search else [])
    report = await prove_erasure(site.context(), visitor, wanted)
    file = base64.b64encode(as_text(report).encode()).decode()
    return site.renderer.page(request, "proof.html", report=report, file=file)


async def proof_file(site: Site, request: Request, _visitor: Visitor) -> Response:
    form = await from_form(request, ProofFile)
    try:
        text = base64.b64decode(form.report, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise InvalidInputError("report", "a report of ours", "something else") from None
    report = check(text, site.context().settings)
    return _file(text, f"proof-{report.customer_id}-{report.contact_id}.json")


def _file(text: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(text.encode(), media_type="application/json", headers=headers)


_CONTACT = get("/contacts", contact)

PAGE = DashboardPage(
    order=35,
    navigation=Navigation("Contacts", "/contacts"),
    routes=(
        _CONTACT,
        post("/contacts/erase", erase, form_on=_CONTACT),
        post("/contacts/export", export, form_on=_CONTACT),
        post("/contacts/prove", prove, form_on=_CONTACT),
        post("/contacts/proof-file", proof_file),
    ),
    operations=contacts.OPERATIONS,
)
