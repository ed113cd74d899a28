"""Contacts: what is known of one, erasing it, exporting what is kept about it, proving that nothing is left."""

import asyncio
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import ClientManagerError, TransientError, UnknownTenantError
from clientmgr.broker.factory import open_broker
from clientmgr.erasure import subject
from clientmgr.erasure.contact_end import ContactEnd, end_of_contact
from clientmgr.erasure.places import Stores
from clientmgr.erasure.proof import audit_rows, prove_contact
from clientmgr.erasure.report import DeletionAuditRow, DeletionNote, Report
from clientmgr.erasure.requests import request_erasure
from clientmgr.erasure.subject_access import export_contact
from clientmgr.operations.dagster_addresses import dagster_database_url
from clientmgr.tenants.registry import find_tenant
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import (
    ContactNumber,
    CustomerNumber,
    SearchText,
    api_get,
    api_post,
    row_of,
)

AT_ONCE = 2
"""Proofs and exports look at everything there is: more of them at once would leave the database no time for others."""
LARGEST_EXPORT = 64 * 1024 * 1024
_PLACES = threading.BoundedSemaphore(AT_ONCE)

Result = TypeVar("Result")


class KnownContactRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber
    contact_id: ContactNumber


class EraseRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    customer_id: CustomerNumber
    contact_id: ContactNumber
    confirm: Annotated[int, Meta(ge=1, le=2**63 - 1, description="The contact's id once more.")]


class ExportRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    customer_id: CustomerNumber
    contact_id: ContactNumber
    reveal: bool = False


class ProveRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    customer_id: CustomerNumber
    contact_id: ContactNumber
    search: Annotated[list[SearchText], Meta(max_length=10, description="Texts to look for everywhere.")] = []


class KnownContact(Struct, frozen=True, rename="camel"):
    """What a tenant's tables know of a contact."""

    customer_id: int
    contact_id: int
    devices: int
    deleted_devices: int
    """That went with it, as far as their hashes are kept."""
    deletions: list[DeletionNote]
    ended: ContactEnd | None
    """When and by what it was deleted; null: it was not."""
    audit_rows: list[DeletionAuditRow]


class ErasureRequested(Struct, frozen=True, rename="camel"):
    customer_id: int
    contact_id: int
    deleted_at: datetime


class ContactExport(Struct, frozen=True, rename="camel"):
    """Everything that is kept about a contact."""

    customer_id: int
    contact_id: int
    exported_at: datetime
    exported_by: str
    release: str
    tokens_included: bool
    messages: list[dict[str, Any]]
    other_rows: list[dict[str, Any]]
    audit_rows: list[dict[str, Any]]
    legacy_devices: list[dict[str, Any]]
    devices: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    merges: list[dict[str, Any]] = []
    deletions: list[dict[str, Any]] = []


async def known_contact(context: Context, _visitor: Visitor, request: KnownContactRequest) -> KnownContact:
    customer_id = CustomerId(request.customer_id)

    def read(connection: Connection[Any]) -> KnownContact:
        if find_tenant(connection, customer_id) is None:
            raise UnknownTenantError(f"customer {customer_id} was never activated")
        keys = _stores(context).keys
        found = subject.contact(connection, customer_id, request.contact_id, keys)
        return KnownContact(
            request.customer_id,
            request.contact_id,
            len(found.devices),
            len(found.gone),
            [row_of(DeletionNote, one) for one in found.deletions],
            end_of_contact(connection, customer_id, request.contact_id, keys) if found.deletions else None,
            audit_rows(connection, found),
        )

    return await context.read(read)


async def erase_contact(context: Context, visitor: Visitor, request: EraseRequest) -> ErasureRequested:
    """Publish the deletion of a contact. Its devices go at once, and all else within ERASURE_HOURS."""
    if request.confirm != request.contact_id:
        raise ClientManagerError(f"confirm: expected the contact's id, {request.contact_id}, got {request.confirm}")
    async with open_broker(context.settings, context.database) as broker:
        requested = await request_erasure(
            broker,
            context.database,
            context.settings,
            CustomerId(request.customer_id),
            request.contact_id,
            actor=visitor.actor,
        )
    return ErasureRequested(request.customer_id, request.contact_id, requested.deleted_at)


async def export_of_contact(context: Context, visitor: Visitor, request: ExportRequest) -> ContactExport:
    return msgspec.json.decode(await exported_text(context, visitor, request), type=ContactExport)


async def exported_text(context: Context, visitor: Visitor, request: ExportRequest) -> str:
    """The export as a file has it."""

    def export() -> str:
        text = io.StringIO()

        def write(part: str) -> None:
            text.write(part)
            if text.tell() > LARGEST_EXPORT:
                raise ClientManagerError("This is too much for a browser: use `clientmgr contacts export`.")

        customer_id = CustomerId(request.customer_id)
        export_contact(
            _stores(context), customer_id, request.contact_id, write, actor=visitor.actor, reveal=request.reveal
        )
        return text.getvalue()

    return await _at_its_turn(export)


async def prove_erasure(context: Context, visitor: Visitor, request: ProveRequest) -> Report:
    """Look into every place for what is left of a contact. The report is signed."""
    texts = [text for text in request.search if text.strip()]

    def prove() -> Report:
        customer_id = CustomerId(request.customer_id)
        return prove_contact(_stores(context), customer_id, request.contact_id, actor=visitor.actor, texts=texts)

    return await _at_its_turn(prove)


async def _at_its_turn(work: Callable[[], Result]) -> Result:
    def run() -> Result:
        with _place():
            return work()

    return await asyncio.to_thread(run)


@contextmanager
def _place() -> Iterator[None]:
    if not _PLACES.acquire(blocking=False):
        raise TransientError(f"{AT_ONCE} proofs or exports are being made already: try again in a while.")
    try:
        yield
    finally:
        _PLACES.release()


def _stores(context: Context) -> Stores:
    return Stores(context.database, context.settings, dagster_database_url(context.settings))


OPERATIONS = (
    api_get("/contacts/{customerId}/{contactId}", "What is known of a contact.", known_contact),
    api_post("/contacts/erase", "Erase a contact with its devices.", erase_contact),
    api_post("/contacts/export", "Everything that is kept about a contact.", export_of_contact),
    api_post("/contacts/prove", "Prove that nothing is left of a contact.", prove_erasure),
)
