"""Flippers and exclusions: what is set, for whom and by whom; changed for all or for one customer."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct
from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.orphans.exclusions import exclude, include, list_exclusions
from clientmgr.orphans.policy import OrphanPolicy
from clientmgr.tenants.flippers import Flipper, SettingScope, list_settings, set_flipper, unset_flipper
from clientmgr_dashboard.access.visitors import Visitor
from clientmgr_dashboard.context import Desk
from clientmgr_dashboard.operations.interface import CustomerNumber, Page, PageNumber, PerPage, paged
from clientmgr_dashboard.operations.tenants import FlipperState, flipper_states

Reason = Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]


class FlippersRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber | None = None
    """Its own settings and those for all."""
    scope: SettingScope = "any"
    """`all`: only the settings for all tenants; `own`: only tenants' own."""
    page: PageNumber = 1
    per_page: PerPage = 100


class FlipRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: Flipper
    customer_id: CustomerNumber | None = None
    """Null: for every customer that has no setting of its own."""
    enabled: bool | None = None
    """Null: forget the setting, so that the next wider one counts."""


class ExclusionsRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber | None = None
    """Only this one, where it is excluded."""
    page: PageNumber = 1
    per_page: PerPage = 100


class ExcludeRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    customer_id: CustomerNumber
    reason: Reason


class IncludeRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    customer_id: CustomerNumber


class Changed(Struct, frozen=True, rename="camel"):
    changed: bool
    """False: it was so already."""


class ExclusionRow(Struct, frozen=True, rename="camel"):
    """A customer whose orphans are never deleted."""

    customer_id: int
    reason: str
    updated_by: str
    updated_at: datetime | None
    """Null: by the setting ORPHAN_EXCLUDED_CUSTOMERS."""


async def list_flippers(desk: Desk, _visitor: Visitor, request: FlippersRequest) -> Page[FlipperState]:
    customer_id = None if request.customer_id is None else CustomerId(request.customer_id)

    def read(connection: Connection[Any]) -> list[FlipperState]:
        return flipper_states(list_settings(connection, customer_id, scope=request.scope))

    return paged(await desk.read(read), request.page, request.per_page)


async def change_flipper(desk: Desk, visitor: Visitor, request: FlipRequest) -> Changed:
    customer_id = None if request.customer_id is None else CustomerId(request.customer_id)

    def change(connection: Connection[Any]) -> bool:
        with connection.transaction():
            if request.enabled is None:
                return unset_flipper(connection, desk.audit, request.name, customer_id, actor=visitor.actor)
            return set_flipper(
                connection, desk.audit, request.name, customer_id, enabled=request.enabled, actor=visitor.actor
            )

    return Changed(await desk.write(change))


async def list_excluded(desk: Desk, _visitor: Visitor, request: ExclusionsRequest) -> Page[ExclusionRow]:
    stored = await desk.read(list_exclusions)
    rows = [ExclusionRow(one.customer_id, one.reason, one.updated_by, one.updated_at) for one in stored]
    known = {one.customer_id for one in stored}
    rows += [
        ExclusionRow(customer_id, "ORPHAN_EXCLUDED_CUSTOMERS", "setting", None)
        for customer_id in OrphanPolicy.from_settings(desk.settings).excluded
        if customer_id not in known
    ]
    wanted = [row for row in rows if request.customer_id in (None, row.customer_id)]
    return paged(sorted(wanted, key=lambda row: row.customer_id), request.page, request.per_page)


async def exclude_customer(desk: Desk, visitor: Visitor, request: ExcludeRequest) -> Changed:
    def change(connection: Connection[Any]) -> bool:
        with connection.transaction():
            return exclude(
                connection,
                desk.audit,
                CustomerId(request.customer_id),
                reason=request.reason,
                actor=visitor.actor,
            )

    return Changed(await desk.write(change))


async def include_customer(desk: Desk, visitor: Visitor, request: IncludeRequest) -> Changed:
    def change(connection: Connection[Any]) -> bool:
        with connection.transaction():
            return include(connection, desk.audit, CustomerId(request.customer_id), actor=visitor.actor)

    return Changed(await desk.write(change))
