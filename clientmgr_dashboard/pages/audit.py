"""The platform's own audit trail. A tenant's is on the tenant's page."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.operations.audit import (
    AuditRequest,
    Verification,
    VerificationRequest,
    audit_trail,
    quick_verification,
    verify_audit,
)
from clientmgr_dashboard.web.forms import from_query
from clientmgr_dashboard.web.handling import Site, get
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation


async def platform_audit(site: Site, request: Request, visitor: Visitor) -> Response:
    context, trail = site.context(), from_query(request, AuditRequest, customerId=0)
    rows, verified = await asyncio.gather(
        audit_trail(context, visitor, trail), verification_of(site, request, visitor, 0)
    )
    return site.renderer.page(request, "audit.html", trail=rows, verification=verified)


async def verification_of(site: Site, request: Request, visitor: Visitor, customer_id: int) -> Verification:
    """A long trail is verified only when somebody asks for it."""
    if "verify" in request.query_params:
        return await verify_audit(site.context(), visitor, VerificationRequest(customer_id))
    return await quick_verification(site.context(), customer_id)


# The operations of audit trails come with the tenants' page: each of them is about one tenant, or tenant 0.
PAGE = DashboardPage(order=60, navigation=Navigation("Audit", "/audit"), routes=(get("/audit", platform_audit),))
