"""Works through a batch tenant by tenant, so that a tenant that is locked, broken or gone costs only itself.

All tenants are tried together first, which is what happens nearly always. Only when something fails is the work undone
and done again behind a savepoint for each tenant, and where a message may be to blame, by halves until it is found.
"""

import functools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import AsyncConnection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import ErrorKind, TenantUnavailableError, UnknownTenantError, classify
from clientmgr.base.logs import get_logger
from clientmgr.broker.interface import Batch
from clientmgr.devices.queries import OTHER_WAYS
from clientmgr.tenants.registry import TenantStatus, ensure_usable
from streaming.runtime.awaited_tenants import unknown_tenant
from streaming.runtime.daemon import Services
from streaming.runtime.lost_nodes import LostNodes

log = get_logger(__name__)

Item = TypeVar("Item")

PROGRAM_LIMIT_EXCEEDED = "54"
"""SQLSTATE class: a value is too large for something, and nobody thought of that."""


@dataclass(frozen=True, slots=True)
class Work(Generic[Item]):
    """A message's place in the batch, and what was decoded from it."""

    position: int
    customer_id: CustomerId
    item: Item


Apply = Callable[[AsyncConnection[Any], Mapping[CustomerId, Sequence[Item]]], Awaitable[object]]
"""What the tenants' items say, done. Tenants come in the same order everywhere, or two batches wait for each other."""
Failures = dict[int, Exception]
"""Place in the batch → why it failed."""


class TenantBatches(Generic[Item]):
    """Applies items to their tenants inside the batch's transaction."""

    def __init__(self, services: Services, apply: Apply[Item]) -> None:
        self._tenants = services.tenants
        self._apply = apply
        self._lost_nodes = LostNodes()
        self._lock_timeout_ms = services.settings.writer_lock_timeout_ms
        self._unknown_grace_s = services.settings.unknown_tenant_grace_s

    async def run(self, batch: Batch, work: Sequence[Work[Item]]) -> Failures:
        """Apply all that can be applied. Raises only when the connection is lost."""
        connection = batch.connection
        failures: Failures = {}
        if not work:
            return failures
        by_tenant: dict[CustomerId, list[Work[Item]]] = defaultdict(list)
        for one in work:
            by_tenant[one.customer_id].append(one)
        statuses = await self._tenants.statuses(connection, by_tenant)
        if inactive := [customer_id for customer_id in by_tenant if statuses[customer_id] != TenantStatus.ACTIVE]:
            failures = await self._without_tenant(batch, by_tenant, inactive)
        failures |= self._without_node(by_tenant)
        if by_tenant and not await self._all_together(connection, by_tenant):
            for customer_id in sorted(by_tenant):
                if customer_id in by_tenant:
                    failures |= await self._one_tenant(connection, customer_id, by_tenant[customer_id])
                    failures |= self._without_node(by_tenant)
            await connection.execute(_AS_BEFORE)
        return failures

    def _without_node(self, by_tenant: dict[CustomerId, list[Work[Item]]]) -> Failures:
        """Take the work of tenants whose node is gone out of `by_tenant`: it waits."""
        return {
            one.position: error
            for customer_id, error in self._lost_nodes.resting(by_tenant).items()
            for one in by_tenant.pop(customer_id)
        }

    async def _without_tenant(
        self, batch: Batch, by_tenant: dict[CustomerId, list[Work[Item]]], inactive: Sequence[CustomerId]
    ) -> Failures:
        """Take the work of inactive tenants out of `by_tenant`; returns for each message whether it waits or fails."""
        failures: Failures = {}
        statuses = await self._tenants.statuses_with_requests(batch.connection, inactive)
        for customer_id, status in statuses.items():
            error = _why_unusable(customer_id, status)
            if error is None:
                continue  # active meanwhile
            for one in by_tenant.pop(customer_id):
                message = batch.messages[one.position]
                failures[one.position] = (
                    error if status is not None else unknown_tenant(customer_id, message, self._unknown_grace_s)
                )
        if waiting := sum(isinstance(error, TenantUnavailableError) for error in failures.values()):
            log.info("messages wait for their customers' activation", subscription=batch.subscription, messages=waiting)
        return failures

    async def _all_together(
        self, connection: AsyncConnection[Any], by_tenant: dict[CustomerId, list[Work[Item]]]
    ) -> bool:
        """Whether all went well, with the settings as before. If not, all is undone, and the settings are still ours.

        Settings go in one message with the savepoint: a batch of one message is nearly all round trips.
        """
        items = {customer_id: [one.item for one in by_tenant[customer_id]] for customer_id in sorted(by_tenant)}
        await connection.execute(_for_our_work(self._lock_timeout_ms) + b"; SAVEPOINT all_together")
        try:
            await self._apply(connection, items)
        except Exception:
            if connection.closed:
                raise
            await connection.execute(b"ROLLBACK TO all_together; RELEASE all_together")
            return False
        await connection.execute(b"RELEASE all_together; " + _AS_BEFORE)
        return True

    async def _one_tenant(
        self, connection: AsyncConnection[Any], customer_id: CustomerId, work: Sequence[Work[Item]]
    ) -> Failures:
        error = await self._attempt(connection, customer_id, work)
        if error is None:
            return {}
        if len(work) > 1 and _a_message_may_be_to_blame(error):
            middle = len(work) // 2
            first = await self._one_tenant(connection, customer_id, work[:middle])
            return first | await self._one_tenant(connection, customer_id, work[middle:])
        log.warning(
            "not written",
            customer_id=customer_id,
            messages=len(work),
            kind=classify(error).value,
            error_type=type(error).__name__,
            error=str(error).strip(),
        )
        return dict.fromkeys((one.position for one in work), error)

    async def _attempt(
        self, connection: AsyncConnection[Any], customer_id: CustomerId, work: Sequence[Work[Item]]
    ) -> Exception | None:
        try:
            async with connection.transaction():
                await self._apply(connection, {customer_id: [one.item for one in work]})
        except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedTable) as error:
            return await self._gone_meanwhile(connection, customer_id) or error
        except Exception as error:
            if connection.closed:
                raise
            return await self._lost_nodes.judge(connection, customer_id, error) or error
        return None

    async def _gone_meanwhile(self, connection: AsyncConnection[Any], customer_id: CustomerId) -> Exception | None:
        """A schema that is missing: was the tenant deleted since it was last looked up?"""
        statuses = await self._tenants.statuses_with_requests(connection, [customer_id])
        return _why_unusable(customer_id, statuses[customer_id])


def _why_unusable(customer_id: CustomerId, status: str | None) -> Exception | None:
    try:
        ensure_usable(customer_id, status)
    except (TenantUnavailableError, UnknownTenantError) as error:
        return error
    return None


@functools.cache
def _for_our_work(lock_timeout_ms: int) -> bytes:
    return _settings({"lock_timeout": f"{lock_timeout_ms:d}"} | {f"enable_{way}": "off" for way in OTHER_WAYS})


def _settings(values: Mapping[str, str]) -> bytes:
    return "; ".join(f"SET LOCAL {name} = {value}" for name, value in values.items()).encode()


_AS_BEFORE = _settings(dict.fromkeys(["lock_timeout", *(f"enable_{way}" for way in OTHER_WAYS)], "DEFAULT"))


def _a_message_may_be_to_blame(error: Exception) -> bool:
    """Whether others of the tenant may succeed without it. Not where a table is locked, or lacks a column."""
    kind = classify(error)
    if kind is not ErrorKind.UNFORESEEN:
        return kind is ErrorKind.PERMANENT and not isinstance(error, UnknownTenantError)
    sqlstate = getattr(error, "sqlstate", None)
    return sqlstate is None or sqlstate.startswith(PROGRAM_LIMIT_EXCEEDED)
