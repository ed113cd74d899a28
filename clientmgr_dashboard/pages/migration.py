"""Customers on their way from DynamoDB to PostgreSQL: how far each is, why it goes no further, and forms to move it."""

from typing import Any, Literal

from msgspec import Struct
from psycopg import Connection
from starlette.requests import Request
from starlette.responses import Response

from clientmgr.base.customer_ids import CustomerId
from clientmgr.legacy_migration import moving
from clientmgr.legacy_migration.moving import MigrationStatus, status_of
from clientmgr.legacy_migration.stages import ORDER, Stage
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import CustomerNumber, Page, PageNumber, PerPage, api_get, api_post, paged
from clientmgr_dashboard.web.forms import from_form, from_query
from clientmgr_dashboard.web.handling import Site, as_parameters, get, post, see_other
from clientmgr_dashboard.web.page import DashboardPage
from clientmgr_dashboard.web.rendering import Navigation

MEANING = {
    Stage.LEGACY: "The device mapper reads DynamoDB. Nothing is imported.",
    Stage.IMPORTING: "The same, while Dagster imports its devices, every night and when it is started.",
    Stage.IN_SYNC: "The same, and DynamoDB has nothing that PostgreSQL lacks.",
    Stage.POSTGRES_WITH_FALLBACK: "The mapper reads PostgreSQL, and asks DynamoDB for contacts without a device there.",
    Stage.POSTGRES_ONLY: "DynamoDB is not asked any more, and orphans are deleted.",
}
PER_PAGE = 50


class MigrationsRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber | None = None
    stage: Stage | None = None
    page: PageNumber = 1
    per_page: PerPage = 100


class MoveRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    customer_id: CustomerNumber
    move: Literal["start", "advance", "back"]
    to: Stage | None = None
    """With `back`: which earlier stage. Absent: the one before."""


class Shown(Struct, frozen=True, rename="camel"):
    """What the page's address says."""

    customer_id: CustomerNumber | None = None
    stage: Stage | None = None
    page: PageNumber = 1


class Moved(Struct, frozen=True, rename="camel"):
    moved: CustomerNumber | None = None


async def list_migrations(context: Context, _visitor: Visitor, request: MigrationsRequest) -> Page[MigrationStatus]:
    customers = None if request.customer_id is None else [CustomerId(request.customer_id)]

    def read(connection: Connection[Any]) -> list[MigrationStatus]:
        found = status_of(connection, context.settings, customers)
        return [one for one in found if request.stage in (None, one.stage)]

    return paged(await context.read(read), request.page, request.per_page)


async def move_migration(context: Context, visitor: Visitor, request: MoveRequest) -> MigrationStatus:
    customer_id = CustomerId(request.customer_id)

    def change(connection: Connection[Any]) -> MigrationStatus:
        with connection.transaction():
            asked = (connection, context.audit, context.settings, customer_id)
            match request.move:
                case "start":
                    return moving.start(*asked, actor=visitor.actor)
                case "advance":
                    return moving.advance(*asked, actor=visitor.actor)
                case "back":
                    return moving.back(*asked, actor=visitor.actor, to=request.to)

    return await context.write(change)


async def migration(site: Site, request: Request, visitor: Visitor) -> Response:
    shown = from_query(request, Shown)
    wanted = MigrationsRequest(shown.customer_id, shown.stage, shown.page, PER_PAGE)
    return site.renderer.page(
        request,
        "migration.html",
        found=await list_migrations(site.context(), visitor, wanted),
        meaning=MEANING,
        stages=ORDER,
        shown=shown,
        parameters=as_parameters(shown),
        moved=from_query(request, Moved).moved,
    )


async def move(site: Site, request: Request, visitor: Visitor) -> Response:
    moved = await move_migration(site.context(), visitor, await from_form(request, MoveRequest))
    return see_other(f"/migration?moved={moved.customer_id}")


_TABLE = get("/migration", migration)

PAGE = DashboardPage(
    order=45,
    navigation=Navigation("Migration", "/migration"),
    routes=(_TABLE, post("/migration", move, form_on=_TABLE)),
    operations=(
        api_get("/migrations", "How far customers are on their way from DynamoDB to PostgreSQL.", list_migrations),
        api_post("/migrations", "Start a customer's migration, or move it to another stage.", move_migration),
    ),
)
