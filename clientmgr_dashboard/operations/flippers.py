"""Flippers and exclusions: what is set, for whom and by whom; changed for all or for one customer."""

from typing import Any

from msgspec import Struct
from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.operations.flipper_effects import effect_for_all
from clientmgr.orphans.exclusions import ExclusionRow, exclude, include, list_exclusions
from clientmgr.orphans.policy import OrphanPolicy
from clientmgr.tenants.flippers import Flipper, FlipperState, SettingScope, list_settings, set_flipper, unset_flipper
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import (
    Changed,
    CustomerNumber,
    Page,
    PageNumber,
    PerPage,
    Reason,
    api_get,
    api_post,
    paged,
    row_of,
)


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


class FlipForAllRequest(Struct, frozen=True, rename="camel"):
    name: Flipper
    enabled: bool | None = None
    """Null: forget the setting."""


class FlipPreview(Struct, frozen=True, rename="camel"):
    """What a change for all tenants would do."""

    tenants: int
    """So many would change."""
    own_settings: int
    """So many have a setting of their own and stay as they are."""
    messages_last_hour: int
    """What the device mappers were sent for the tenants that change."""
    is_at_least: bool
    stop_reading_legacy: int
    start_reading_legacy: int
    in_words: list[str]


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


async def list_flippers(context: Context, _visitor: Visitor, request: FlippersRequest) -> Page[FlipperState]:
    customer_id = None if request.customer_id is None else CustomerId(request.customer_id)

    def read(connection: Connection[Any]) -> list[FlipperState]:
        return list(list_settings(connection, customer_id, scope=request.scope))

    return paged(await context.read(read), request.page, request.per_page)


async def change_flipper(context: Context, visitor: Visitor, request: FlipRequest) -> Changed:
    customer_id = None if request.customer_id is None else CustomerId(request.customer_id)

    def change(connection: Connection[Any]) -> bool:
        with connection.transaction():
            if request.enabled is None:
                return unset_flipper(connection, context.audit, request.name, customer_id, actor=visitor.actor)
            return set_flipper(
                connection, context.audit, request.name, customer_id, enabled=request.enabled, actor=visitor.actor
            )

    return Changed(await context.write(change))


async def preview_flip(context: Context, _visitor: Visitor, request: FlipForAllRequest) -> FlipPreview:
    policy = OrphanPolicy.from_settings(context.settings)
    effect = await context.read(effect_for_all, request.name, request.enabled, policy)
    return row_of(FlipPreview, effect)


async def list_excluded(context: Context, _visitor: Visitor, request: ExclusionsRequest) -> Page[ExclusionRow]:
    stored = await context.read(list_exclusions)
    known = {one.customer_id for one in stored}
    rows = stored + [
        ExclusionRow(customer_id, "ORPHAN_EXCLUDED_CUSTOMERS", "setting", None)
        for customer_id in OrphanPolicy.from_settings(context.settings).excluded
        if customer_id not in known
    ]
    wanted = [row for row in rows if request.customer_id in (None, row.customer_id)]
    return paged(sorted(wanted, key=lambda row: row.customer_id), request.page, request.per_page)


async def exclude_customer(context: Context, visitor: Visitor, request: ExcludeRequest) -> Changed:
    def change(connection: Connection[Any]) -> bool:
        with connection.transaction():
            return exclude(
                connection,
                context.audit,
                CustomerId(request.customer_id),
                reason=request.reason,
                actor=visitor.actor,
            )

    return Changed(await context.write(change))


async def include_customer(context: Context, visitor: Visitor, request: IncludeRequest) -> Changed:
    def change(connection: Connection[Any]) -> bool:
        with connection.transaction():
            return include(connection, context.audit, CustomerId(request.customer_id), actor=visitor.actor)

    return Changed(await context.write(change))


OPERATIONS = (
    api_get("/flippers", "What is set.", list_flippers),
    api_get("/flippers/preview", "What a change for all tenants would do.", preview_flip),
    api_post("/flippers", "Turn a flipper on or off, or unset it.", change_flipper),
    api_get("/exclusions", "Customers whose orphans are never deleted.", list_excluded),
    api_post("/exclusions", "Keep a customer's orphans.", exclude_customer),
    api_post("/exclusions/remove", "Let a customer's orphans be deleted again.", include_customer),
)
