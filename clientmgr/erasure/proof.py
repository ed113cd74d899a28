"""The proof that nothing is left of a deleted contact or account: looks everywhere, and judges what was found."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any, Final

from psycopg import Connection

from clientmgr.audit.anchoring import LastAnchor, read_last_anchors
from clientmgr.audit.log import AuditEntry, AuditLogger, AuditRecord, Detail
from clientmgr.audit.places.configured import anchor_places
from clientmgr.audit.verification import FindingKind, verify
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.base.errors import UnknownTenantError
from clientmgr.base.sqlfiles import named_queries
from clientmgr.erasure import subject as subjects
from clientmgr.erasure.places import Place, Stores, Watch, look_everywhere, snapshot, unwatched
from clientmgr.erasure.report import ChainCheck, DeletionAuditRow, DeletionNote, Outcome, Report, keyed, signed
from clientmgr.erasure.subject import Subject
from clientmgr.tenants.registry import TenantStatus, find_tenant

_QUERIES = named_queries("erasure/queries/places.sql")


FINDINGS_KEPT: Final = 100


def prove_contact(
    stores: Stores,
    customer_id: CustomerId,
    contact_id: int,
    *,
    actor: str,
    texts: Sequence[str] = (),
    watch: Watch = unwatched,
) -> Report:
    """Look everywhere for a contact. Works before its deletion too: then it says what is kept."""
    asked = Asked(actor, texts, _anchors(stores))
    with snapshot(stores.database) as connection:
        tenant = find_tenant(connection, customer_id)
        if tenant is None:
            raise UnknownTenantError(f"customer {customer_id} was never activated")
        subject = subjects.contact(connection, customer_id, contact_id, stores.keys, texts)
        return _recorded(stores, _report(connection, stores, subject, asked, watch))


def prove_account(
    stores: Stores, customer_id: CustomerId, *, actor: str, texts: Sequence[str] = (), watch: Watch = unwatched
) -> Report:
    """Look everywhere for an account. Works before its deletion too."""
    asked = Asked(actor, texts, _anchors(stores))
    with snapshot(stores.database) as connection:
        tenant = find_tenant(connection, customer_id)
        is_deleted = tenant is not None and tenant.status == TenantStatus.DELETED
        subject = subjects.account(
            customer_id, tenant.deleted_at if tenant and is_deleted else None, stores.keys, texts
        )
        return _recorded(stores, _report(connection, stores, subject, asked, watch))


@dataclass(frozen=True, slots=True)
class Asked:
    """Who wants the proof, the texts that they want looked for, and what the audit log is compared with."""

    actor: str
    texts: Sequence[str]
    anchors: Sequence[LastAnchor]


def _anchors(stores: Stores) -> list[LastAnchor]:
    """Before the snapshot: a later anchor could name rows that the snapshot does not have yet."""
    return read_last_anchors(anchor_places(stores.settings), stores.keys.audit)


def _report(connection: Connection[Any], stores: Stores, subject: Subject, asked: Asked, watch: Watch) -> Report:
    logger = stores.keys.audit
    now = datetime.now(UTC)
    places = list(look_everywhere(connection, stores, subject, watch))
    watch("the audit log")
    verified = list(verify(connection, logger, subject.customer_id, last_anchors=asked.anchors))
    findings = [f"row {found.seq}: {found.problem}" for found in verified if found.kind is not FindingKind.UNAVAILABLE]
    rows = audit_rows(connection, subject)
    deletions = [DeletionNote(one.deleted_at, one.recorded_at) for one in subject.deletions]
    notes = [found.problem for found in verified if found.kind is FindingKind.UNAVAILABLE]
    if subject.contact_id is None:
        deletions, of_account = _account_deletion(connection, subject.customer_id)
        notes += of_account
    elif not subject.schema_is_there:
        notes.append("The customer's schema is gone with all its devices: its account is deleted.")
    due_until = None
    if deletions:
        # What names a deleted contact may arrive late: its time counts from then on.
        late = [place.newest for place in places if place.newest is not None]
        newest = max([*(one.recorded_at for one in deletions), *late])
        due_until = newest + timedelta(hours=stores.settings.erasure_hours)
    outcome, verdict = judged(places, findings, now=now, due_until=due_until)
    if not deletions and subject.contact_id is not None:
        traces = outcome != "nothing left" or rows or any(place.hashes for place in places)
        notes.append(
            "No deletion of this contact is recorded."
            if traces
            else "No deletion of this contact is recorded, and no trace of it: it never existed here, or even the"
            " hashes of it are gone."
        )
    report = Report(
        "proof: account" if subject.contact_id is None else "proof: contact",
        verdict,
        outcome,
        subject.customer_id,
        subject.contact_id,
        subject.audit_hash,
        now,
        asked.actor,
        f"clientmgr {version('clientmgr')}",
        deletions,
        due_until,
        [keyed(stores.settings, text.encode()).hex() for text in asked.texts],
        places,
        rows,
        ChainCheck(not findings, findings[:FINDINGS_KEPT]),
        notes,
        logger.key_id,
    )
    return signed(report, stores.settings)


def judged(
    places: Sequence[Place], findings: Sequence[str], *, now: datetime, due_until: datetime | None
) -> tuple[Outcome, str]:
    """What all looks together come to."""
    left = ", ".join(f"{place.place} ({place.found})" for place in places if place.is_ours and place.found)
    unseen = [place.place for place in places if place.state == "could not be looked at"]
    if left and due_until is not None and now < due_until:
        return (
            "within the erasure period",
            f"within the erasure period: {left}, due until {due_until:%Y-%m-%d %H:%M} UTC",
        )
    if left:
        return "left", f"left: {left}"
    if unseen:
        return "not proven", f"not proven: {', '.join(unseen)} could not be looked at"
    if findings:
        return "not proven", "not proven: the audit log is not as it was written"
    return "nothing left", "nothing left"


def audit_rows(connection: Connection[Any], subject: Subject) -> list[DeletionAuditRow]:
    """The rows of the audit log that are about the contact or the account."""
    query = _QUERIES["account_audit_rows" if subject.contact_id is None else "audit_rows"]
    wanted = {"customer_id": subject.customer_id, "contact_hash": subject.audit_hash}
    records = [AuditRecord(*row) for row in connection.execute(query, wanted)]
    return [
        DeletionAuditRow(
            one.seq, one.recorded_at, one.actor, one.action, one.outcome, one.rows_affected, dict(one.details)
        )
        for one in records
    ]


def _account_deletion(connection: Connection[Any], customer_id: CustomerId) -> tuple[list[DeletionNote], list[str]]:
    tenant = find_tenant(connection, customer_id)
    if tenant is None:
        return [], ["This customer was never activated."]
    if tenant.deleted_at is None or tenant.status != TenantStatus.DELETED:
        return [], [f"The account is not deleted: it is {tenant.status}."]
    return [DeletionNote(tenant.deleted_at, tenant.deleted_at)], []


def _recorded(stores: Stores, report: Report) -> Report:
    """Note in the audit log who proved what, and how it came out."""
    action = "account.prove" if report.contact_id is None else "contact.prove"
    found = sum(place.found for place in report.places if place.is_ours)
    details: dict[str, Detail] = {"signature": report.signature, "places": len(report.places)}
    chain = CustomerId(report.customer_id) if report.audit_rows or report.contact_id is not None else 0
    entry = AuditEntry(chain, report.made_by, action, report.outcome, report.contact_id, found, details)
    with stores.database.connect(Role.WRITER) as connection:
        AuditLogger.from_settings(stores.settings).append(connection, [entry])
    return report
