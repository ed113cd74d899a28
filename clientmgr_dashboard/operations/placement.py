"""Where tenants lie on a Citus cluster. To move them is for the command line: the dashboard's logins may not."""

from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct
from psycopg import Connection

from clientmgr.base.citus import spreads_tenants
from clientmgr.tenants import placement
from clientmgr.tenants.names import names_of
from clientmgr.tenants.placement import NodeLoad, Placement
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import (
    CustomerNumber,
    Page,
    PageNumber,
    PerPage,
    SearchText,
    api_get,
    paged,
    row_of,
)

SHARED_FOR_S: Final = 15.0
"""A look asks every node for the size of every table: nobody's page may cost that again and again."""


class PlacementRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber | None = None
    node: SearchText | None = None
    """host:port"""
    page: PageNumber = 1
    per_page: PerPage = 50


class ClusterNode(Struct, frozen=True, rename="camel"):
    """A server of the cluster. What is null is not known."""

    node: str
    state: str
    answers: bool
    takes_tenants: bool
    tenants: int
    bytes: int | None
    rows_written_per_s: float | None
    connections: int | None


class PlacedTenant(Struct, frozen=True, rename="camel"):
    """A tenant and the node that its schema lies on."""

    customer_id: int
    name: str | None
    node: str
    is_distributed: bool
    """False: it was made before there was a cluster, and lies on the coordinator alone."""
    bytes: int | None
    rows_written_per_s: float | None


class TenantCopy(Struct, frozen=True, rename="camel"):
    """A tenant that is being moved, or was until a minute ago."""

    customer_id: int
    to: str
    copied: int | None
    bytes: int | None
    """What it has where it lies."""


class Rebalancing(Struct, frozen=True, rename="camel"):
    """The newest one."""

    job_id: int
    state: str
    started_at: datetime | None
    finished_at: datetime | None
    moved: int
    moves: int
    trouble: str | None
    is_under_way: bool


class Cluster(Struct, frozen=True, rename="camel"):
    """Nodes and what lies on them."""

    is_cluster: bool
    """False: one PostgreSQL has all tenants, and all else is empty."""
    looked_at: datetime
    nodes: list[ClusterNode]
    tenants: Page[PlacedTenant]
    """The largest first."""
    moves: list[TenantCopy]
    rebalance: Rebalancing | None


async def show_placement(context: Context, _visitor: Visitor, request: PlacementRequest) -> Cluster:
    async def look() -> Cluster:
        return await context.read(_look, context.settings.citus)

    whole = await context.shared.answer("placement", SHARED_FOR_S, look)
    wanted = [
        tenant
        for tenant in whole.tenants.items
        if request.customer_id in (None, tenant.customer_id) and request.node in (None, "", tenant.node)
    ]
    return Cluster(
        whole.is_cluster,
        whole.looked_at,
        whole.nodes,
        paged(wanted, request.page, request.per_page),
        whole.moves,
        whole.rebalance,
    )


def _look(connection: Connection[Any], citus: str) -> Cluster:
    now = datetime.now(UTC)
    if not spreads_tenants(connection, citus):
        return Cluster(False, now, [], paged([], 1, 1), [], None)
    found = placement.look(connection)
    names = names_of(connection)
    tenants = [_tenant(found, place, names.get(place.customer_id)) for place in found.places]
    tenants.sort(key=lambda tenant: (-(tenant.bytes or 0), tenant.customer_id))
    groups = {place.customer_id: place.group for place in found.places}
    copies = [
        TenantCopy(
            copy.customer_id,
            found.address(copy.group),
            found.load_of(copy.customer_id, copy.group)[0],
            found.load_of(copy.customer_id, groups[copy.customer_id])[0],
        )
        for copy in found.copies
        if copy.customer_id in groups
    ]
    rebalance = None if found.rebalance is None else row_of(Rebalancing, found.rebalance)
    return Cluster(True, now, _nodes(found), Page(tenants, 1, max(1, len(tenants)), len(tenants)), copies, rebalance)


def _nodes(found: Placement) -> list[ClusterNode]:
    rows = []
    for node in found.nodes:
        load = found.loads.get(node.group, NodeLoad())
        tenants = sum(place.group == node.group for place in found.places)
        answers = node.is_active and load.trouble is None
        known = {"state": found.state_of(node), "answers": answers, "takes_tenants": node.takes_tenants}
        rows.append(row_of(ClusterNode, load, node=node.address, tenants=tenants, **known))
    return rows


def _tenant(found: Placement, place: placement.Place, name: str | None) -> PlacedTenant:
    used, rate = found.load_of(place.customer_id, place.group)
    return PlacedTenant(place.customer_id, name, found.address(place.group), place.is_distributed, used, rate)


OPERATIONS = (
    api_get("/placement", "Where tenants lie on a Citus cluster: nodes, tenants, sizes and load.", show_placement),
)
