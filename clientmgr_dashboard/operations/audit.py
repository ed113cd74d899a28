"""Audit trails: a tenant's or the platform's, and whether they are as they were written."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from psycopg import Connection

from clientmgr.audit.anchoring import LastAnchor, read_last_anchors
from clientmgr.audit.log import AuditLogger, AuditRecord, chain_length, read_chain
from clientmgr.audit.places.configured import anchor_places
from clientmgr.audit.verification import Examined, Verdict, verify
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import Limit, Newest, RowNumber, api_get, newest, row_of

VERIFIED_AT_ONCE = 2_000
"""Rows of a chain that are checked whenever somebody looks; a longer chain is checked when somebody asks."""
FINDINGS_SHOWN = 20
ANCHORS_GOOD_FOR_S = 60.0
"""Anchors of a minute ago prove nearly as much as the last ones, and a page need not wait for a bucket."""


class AuditRequest(Struct, frozen=True, rename="camel"):
    customer_id: Annotated[int, Meta(ge=0, le=999_999_999_999_999_999, description="0: the platform itself.")]
    limit: Limit = 50
    before: RowNumber | None = None


class VerificationRequest(Struct, frozen=True, rename="camel"):
    customer_id: Annotated[int, Meta(ge=0, le=999_999_999_999_999_999, description="0: the platform itself.")]


class AuditRow(Struct, frozen=True, rename="camel"):
    """A row of the audit log."""

    seq: int
    recorded_at: datetime
    actor: str
    action: str
    outcome: str
    rows_affected: int | None
    contact_hash: str | None
    details: dict[str, str | int | bool | None]
    is_authentic: bool | None
    """Whether it is as it was written; null: written with another key."""


class AuditFinding(Struct, frozen=True, rename="camel"):
    seq: int
    problem: str


class Verification(Struct, frozen=True, rename="camel"):
    """Whether a chain of the audit log is as it was written."""

    state: Literal["intact", "broken", "not proven", "not checked"]
    """not proven: nothing is wrong, but a place for anchors did not answer."""
    rows: int
    findings: list[AuditFinding]
    anchors: int = 0
    """How many places' last anchors it was compared with."""


async def audit_trail(context: Context, _visitor: Visitor, request: AuditRequest) -> Newest[AuditRow]:
    records = await context.read(read_chain, request.customer_id, limit=request.limit + 1, before_seq=request.before)
    return newest([_audit_row(record, context.audit) for record in records], request.limit, lambda row: row.seq)


async def verify_audit(context: Context, _visitor: Visitor, request: VerificationRequest) -> Verification:
    return await context.read(_verify, context.audit, request.customer_id, await _last_anchors(context))


async def quick_verification(context: Context, customer_id: int) -> Verification:
    """What `verify_audit` says, where that does not take long."""
    rows = await context.read(chain_length, customer_id)
    if rows > VERIFIED_AT_ONCE:
        return Verification("not checked", rows, [])
    return await context.read(_verify, context.audit, customer_id, await _last_anchors(context))


async def _last_anchors(context: Context) -> list[LastAnchor]:
    def read() -> list[LastAnchor]:
        return read_last_anchors(anchor_places(context.settings), context.audit)

    return await context.shared.answer("audit anchors", ANCHORS_GOOD_FOR_S, lambda: asyncio.to_thread(read))


def _audit_row(record: AuditRecord, audit: AuditLogger) -> AuditRow:
    is_authentic = audit.is_authentic(record) if record.key_id == audit.key_id else None
    return row_of(AuditRow, record, details=dict(record.details), is_authentic=is_authentic)


def _verify(
    connection: Connection[Any], audit: AuditLogger, customer_id: int, last_anchors: Sequence[LastAnchor]
) -> Verification:
    examined = Examined()
    with connection.transaction():
        verdict = Verdict.of(
            verify(connection, audit, customer_id, last_anchors=last_anchors, examined=examined), examined
        )
    state: Literal["intact", "broken", "not proven"] = "broken" if verdict.state == "damaged" else verdict.state
    findings = [row_of(AuditFinding, found) for found in verdict.first[:FINDINGS_SHOWN]]
    return Verification(state, examined.rows, findings, examined.anchors)


OPERATIONS = (
    api_get("/audit/{customerId}", "A customer's audit trail.", audit_trail),
    api_get(
        "/audit/{customerId}/verification",
        "Whether a customer's audit trail is as it was written.",
        verify_audit,
    ),
)
