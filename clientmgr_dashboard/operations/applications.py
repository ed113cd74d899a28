"""Applications: what is configured for them, changed field by field or forgotten."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.tenants.applications import (
    Application,
    ApplicationChange,
    list_applications,
    remove_application,
    set_application,
)
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import (
    Changed,
    CustomerNumber,
    Page,
    PageNumber,
    PerPage,
    api_get,
    api_post,
    paged,
)

Code = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^[^\x00]*$")]
Topic = Annotated[str, Meta(min_length=1, max_length=255)]
Origin = Annotated[str, Meta(min_length=1, max_length=300)]
Language = Annotated[str, Meta(min_length=1, max_length=100)]


class ApplicationsRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber | None = None
    """Only this one's."""
    page: PageNumber = 1
    per_page: PerPage = 100


class ApplicationRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    customer_id: CustomerNumber
    application_code: Code


class ConfigureRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Absent: stays as it is. Null, or no origins: nothing is configured any more."""

    customer_id: CustomerNumber
    application_code: Code
    apple_topic: Topic | UnsetType | None = UNSET
    web_origins: list[Origin] | UnsetType = UNSET
    default_language: Language | UnsetType | None = UNSET


async def list_configured(context: Context, _visitor: Visitor, request: ApplicationsRequest) -> Page[Application]:
    customer_id = None if request.customer_id is None else CustomerId(request.customer_id)

    def read(connection: Connection[Any]) -> list[Application]:
        return list(list_applications(connection, customer_id))

    return paged(await context.read(read), request.page, request.per_page)


async def configure_application(context: Context, visitor: Visitor, request: ConfigureRequest) -> Changed:
    wanted = ApplicationChange(request.apple_topic, request.web_origins, request.default_language)

    def change(connection: Connection[Any]) -> bool:
        with connection.transaction():
            return set_application(
                connection,
                context.audit,
                CustomerId(request.customer_id),
                request.application_code,
                wanted,
                actor=visitor.actor,
            )

    return Changed(await context.write(change))


async def forget_application(context: Context, visitor: Visitor, request: ApplicationRequest) -> Changed:
    def change(connection: Connection[Any]) -> bool:
        with connection.transaction():
            return remove_application(
                connection,
                context.audit,
                CustomerId(request.customer_id),
                request.application_code,
                actor=visitor.actor,
            )

    return Changed(await context.write(change))


OPERATIONS = (
    api_get("/applications", "What is configured for applications.", list_configured),
    api_post("/applications", "Configure an application.", configure_application),
    api_post("/applications/remove", "Forget what is configured for an application.", forget_application),
)
