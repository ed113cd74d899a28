"""One search for everything: a tenant by id or name, and in all tenants a contact, a device or a token."""

import asyncio
import threading
import time
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import TransientError
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.devices.search import Found, Hit, search_tenants
from clientmgr.tenants.names import find_tenants_by_name, names_of
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import api_post, row_of

MOST_TENANTS: Final = 20
AT_ONCE: Final = 2
"""A search asks every tenant: more of them at once would leave the database little time for others."""
_PLACES = threading.BoundedSemaphore(AT_ONCE)


class SearchRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """It may be a token: so it belongs in no URL."""

    text: Annotated[str, Meta(min_length=1, max_length=2048, pattern=r"^[^\x00]*$")]
    after: Annotated[int, Meta(ge=0, le=999_999_999_999_999_999, description="Go on behind this customer.")] = 0


class TenantHit(Struct, frozen=True, rename="camel"):
    customer_id: int
    name: str | None
    status: str


class Searched(Struct, frozen=True, rename="camel"):
    """What was found, and what was not looked at."""

    tenants: list[TenantHit]
    hits: list[Hit]
    names: dict[int, str]
    """What the hits' tenants are called."""
    searched: int
    not_searched: int
    """Tenants left out: there were enough hits, or the time was over."""
    next: int | None
    """Give this as `after` to go on; null: this was the end."""
    unreadable: list[int]
    """Tenants that could not be asked."""
    seconds: float


async def search(context: Context, _visitor: Visitor, request: SearchRequest) -> Searched:
    text = request.text.strip()
    started = time.monotonic()

    def find(connection: Connection[Any]) -> list[TenantHit]:
        found = find_tenants_by_name(connection, text, limit=MOST_TENANTS)
        return [row_of(TenantHit, one) for one in found]

    tenants = [] if request.after or not text else await context.read(find)
    found = await asyncio.to_thread(_in_all_tenants, context, text, request.after)
    names = await context.read(names_of, sorted({CustomerId(hit.customer_id) for hit in found.hits}))
    return Searched(
        tenants,
        found.hits,
        {int(customer_id): name for customer_id, name in names.items()},
        found.searched,
        found.left,
        found.go_on_after,
        found.unreadable,
        round(time.monotonic() - started, 2),
    )


def _in_all_tenants(context: Context, text: str, after: int) -> Found:
    if not _PLACES.acquire(blocking=False):
        raise TransientError(f"{AT_ONCE} searches are under way already: try again in a moment.")
    try:
        return search_tenants(context.database, KeyedHashes.from_settings(context.settings), text, after=after)
    finally:
        _PLACES.release()


OPERATIONS = (
    api_post("/search", "A tenant, and in all tenants a contact, a device or a token.", search, needs=Role.VIEWER),
)
