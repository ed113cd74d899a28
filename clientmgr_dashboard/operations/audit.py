"""Audit trails: a tenant's or the platform's, and whether they are as they were written."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from psycopg import Connection

from clientmgr.audit.anchoring import LastAnchor, read_last_anchors
from clientmgr.audit.log import AuditFilter, AuditLogger, AuditRecord, chain_length, read_chain, search_log
from clientmgr.audit.places.configured import anchor_places
from clientmgr.audit.verification import Examined, Verdict, verify
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import (
    Limit,
    Moment,
    Newest,
    RowNumber,
    SearchText,
    api_get,
    newest,
    row_of,
)

VERIFIED_AT_ONCE = 2_000
"""Rows of a chain that are checked whenever somebody looks; a longer chain is checked when somebody asks."""
FINDINGS_SHOWN = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ANCHORS_GOOD_FOR_S = 60.0
"""Anchors of a minute ago prove nearly as much as the last ones, and a page need not wait for a bucket."""


class AuditRequest(Struct, frozen=True, rename="camel"):
    customer_id: Annotated[int, Meta(ge=0, le=999_999_999_999_999_999, description="0: the platform itself.")]
    limit: Limit = 50
    before: RowNumber | None = None


class VerificationRequest(Struct, frozen=True, rename="camel"):
    customer_id: Annotated[int, Meta(ge=0, le=999_999_999_999_999_999, description="0: the platform itself.")]


class AuditSearchRequest(Struct, frozen=True, rename="camel"):
    """Rows of all chains. What is not given selects all."""

    customer_id: (
        Annotated[int, Meta(ge=0, le=999_999_999_999_999_999, description="0: the platform itself.")] | None
    ) = None
    actor: SearchText | None = None
    """A part of who did it."""
    action: SearchText | None = None
    """How the action begins: `flipper` or `flipper.set`."""
    since: Moment | None = None
    until: Moment | None = None
    limit: Limit = 50
    before: Annotated[str, Meta(pattern=r"^[0-9]{1,16}_[0-9]{1,18}_[0-9]{1,18}$")] | None = None


class AuditFound(Struct, frozen=True, rename="camel"):
    items: "list[AuditRow]"
    next: str | None
    """Give this as `before` to go on; null: this was the end."""


class AuditRow(Struct, frozen=True, rename="camel"):
    """A row of the audit log."""

    customer_id: int
    """Whose chain it is in; 0: the platform's."""
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


async def search_audit(context: Context, _visitor: Visitor, request: AuditSearchRequest) -> AuditFound:
    """Who did what, when, to whom: across tenants."""
    wanted = AuditFilter(request.customer_id, request.actor, request.action, request.since, request.until)
    before = None
    if request.before is not None:
        microseconds, customer_id, seq = map(int, request.before.split("_"))
        before = (_EPOCH + timedelta(microseconds=microseconds), customer_id, seq)
    found = await context.read(search_log, wanted, limit=request.limit + 1, before=before)
    shown = found[: request.limit]
    following = _place(shown[-1]) if len(found) > request.limit else None
    return AuditFound([_audit_row(record, context.audit) for record in shown], following)


def _place(record: AuditRecord) -> str:
    return f"{(record.recorded_at - _EPOCH) // timedelta(microseconds=1)}_{record.customer_id}_{record.seq}"


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
    api_get("/audit", "Rows of the audit log across tenants, by who, what and when.", search_audit),
    api_get("/audit/{customerId}", "A customer's audit trail.", audit_trail),
    api_get(
        "/audit/{customerId}/verification",
        "Whether a customer's audit trail is as it was written.",
        verify_audit,
    ),
)
