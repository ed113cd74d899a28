"""The audit log across tenants, by person, action and time, and as a file. A tenant's own trail is on its page too."""

import asyncio

from msgspec.structs import astuple, replace
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.audit.log import PLATFORM
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations.audit import (
    AuditRow,
    AuditSearchRequest,
    Verification,
    VerificationRequest,
    quick_verification,
    search_audit,
    verify_audit,
)
from clientmgr_dashboard.web.csv_files import csv_answer, csv_text
from clientmgr_dashboard.web.forms import from_query
from clientmgr_dashboard.web.handling import Site, as_parameters, get
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation

MOST_IN_A_FILE = 50_000
AT_A_TIME = 500


async def audit_log(site: Site, request: Request, visitor: Visitor) -> Response:
    wanted = from_query(request, AuditSearchRequest)
    chain = PLATFORM if wanted.customer_id is None else wanted.customer_id
    found, verified = await asyncio.gather(
        search_audit(site.context(), visitor, wanted), verification_of(site, request, visitor, chain)
    )
    parameters = {name: item for name, item in as_parameters(wanted).items() if item is not None}
    return site.renderer.page(
        request, "audit.html", trail=found, wanted=wanted, parameters=parameters, verification=verified, chain=chain
    )


async def audit_csv(site: Site, request: Request, visitor: Visitor) -> Response:
    """What the filters select, the newest first, up to a number that a browser can take."""
    wanted = from_query(request, AuditSearchRequest, limit=AT_A_TIME, before=None)
    rows: list[AuditRow] = []
    while len(rows) < MOST_IN_A_FILE:
        found = await search_audit(site.context(), visitor, wanted)
        rows += found.items
        if found.next is None:
            break
        wanted = replace(wanted, before=found.next)
    return csv_answer("audit.csv", csv_text(AuditRow.__struct_fields__, map(astuple, rows)))


async def verification_of(site: Site, request: Request, visitor: Visitor, customer_id: int) -> Verification:
    """A long trail is verified only when somebody asks for it."""
    if "verify" in request.query_params:
        return await verify_audit(site.context(), visitor, VerificationRequest(customer_id))
    return await quick_verification(site.context(), customer_id)


# The operations of audit trails come with the tenants' page: each of them is about one tenant, or tenant 0.
PAGE = DashboardPage(
    order=60,
    navigation=Navigation("Audit", "/audit"),
    routes=(get("/audit", audit_log), get("/audit.csv", audit_csv)),
)
