"""Keys of the HTTP intake: listing, making, rotating and revoking them. A key is shown once, when it is made."""

from datetime import timedelta
from typing import Annotated, Any

from msgspec import Meta, Struct
from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import InvalidInputError
from clientmgr.contracts.intake_keys import KeyKind
from clientmgr.tenants.intake_keys import (
    IntakeKey,
    NewKey,
    UnknownKeyError,
    create_key,
    list_keys,
    revoke_key,
    rotate_key,
)
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import (
    Changed,
    CustomerNumber,
    NotFoundError,
    Page,
    PageNumber,
    PerPage,
    api_get,
    api_post,
    paged,
)

KeyId = Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]
Days = Annotated[int, Meta(ge=0, le=36500, description="Until it expires. 0: never.")]
Identifier = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^[^\x00]*$")]


class KeysRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber | None = None
    page: PageNumber = 1
    per_page: PerPage = 100


class CreateKeyRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    customer_id: CustomerNumber
    application_code: Identifier
    name: Annotated[str, Meta(min_length=1, max_length=64, pattern="^[A-Za-z0-9][A-Za-z0-9 ._-]*$")] = "default"
    kind: KeyKind = KeyKind.SERVER
    origins: Annotated[list[Annotated[str, Meta(max_length=300)]], Meta(max_length=20)] = []
    days: Days = 0


class RotateKeyRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    key_id: KeyId
    grace_hours: Annotated[float, Meta(ge=0, le=24 * 365)] = 168.0
    """How long the old key goes on to count."""
    days: Days = 0


class RevokeKeyRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    key_id: KeyId
    confirm: Annotated[str, Meta(max_length=64, description="The key's id once more.")]


async def list_intake_keys(context: Context, _visitor: Visitor, request: KeysRequest) -> Page[IntakeKey]:
    customer_id = None if request.customer_id is None else CustomerId(request.customer_id)

    def read(connection: Connection[Any]) -> list[IntakeKey]:
        return list(list_keys(connection, customer_id))

    return paged(await context.read(read), request.page, request.per_page)


async def create_intake_key(context: Context, visitor: Visitor, request: CreateKeyRequest) -> NewKey:
    def change(connection: Connection[Any]) -> NewKey:
        with connection.transaction():
            return create_key(
                connection,
                context.audit,
                context.settings,
                CustomerId(request.customer_id),
                request.application_code,
                name=request.name,
                kind=request.kind,
                origins=request.origins,
                lifetime=_lifetime(request.days),
                actor=visitor.actor,
            )

    return await context.write(change)


async def rotate_intake_key(context: Context, visitor: Visitor, request: RotateKeyRequest) -> NewKey:
    def change(connection: Connection[Any]) -> NewKey:
        with connection.transaction():
            return rotate_key(
                connection,
                context.audit,
                context.settings,
                request.key_id,
                grace=timedelta(hours=request.grace_hours),
                lifetime=_lifetime(request.days),
                actor=visitor.actor,
            )

    try:
        return await context.write(change)
    except UnknownKeyError as error:
        raise NotFoundError(str(error)) from None


async def revoke_intake_key(context: Context, visitor: Visitor, request: RevokeKeyRequest) -> Changed:
    if request.confirm != request.key_id:
        raise InvalidInputError("confirm", "the key's id once more", request.confirm)

    def change(connection: Connection[Any]) -> bool:
        with connection.transaction():
            return revoke_key(connection, context.audit, request.key_id, actor=visitor.actor)

    try:
        return Changed(await context.write(change))
    except UnknownKeyError as error:
        raise NotFoundError(str(error)) from None


def _lifetime(days: int) -> timedelta | None:
    return timedelta(days=days) if days else None


OPERATIONS = (
    api_get("/intake-keys", "Keys of the HTTP intake, without their secrets.", list_intake_keys),
    api_post("/intake-keys", "Make a key. Its text is in this answer, and nowhere else.", create_intake_key),
    api_post("/intake-keys/rotate", "Make a key like another, which then expires after a while.", rotate_intake_key),
    api_post("/intake-keys/revoke", "Revoke a key for good.", revoke_intake_key),
)
