"""`DeviceManager` finds the devices of a contact in DynamoDB, the legacy store. It only reads.

At most DYNAMODB_CONCURRENCY queries are under way at once. A query that AWS asks us to repeat is tried a few times.
After that the caller gets the error, which `clientmgr.base.errors` classifies as transient. A table that throttles is
asked more slowly, for as long as DYNAMODB_PATIENCE_MS allows.
"""

import asyncio
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from clientmgr.base.backoff import backoff_s
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import ThrottledError, is_throttling, is_transient
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.contracts.decoding import is_identifier
from clientmgr.devices.contact_devices import ContactDevice, DevicesByContact
from clientmgr.devices.legacy.dynamodb import DynamoDbAccess
from clientmgr.devices.legacy.items import device_of
from clientmgr.devices.legacy.queries import QueryClient
from clientmgr.devices.legacy.throttling import Answer, KeptAnswers, Pace

log = get_logger(__name__)

ATTEMPTS = 3
"""Attempts of one query. A throttled query does not count as an attempt: it costs time instead."""
PAUSE_S = 0.05
"""The longest random pause before the second attempt. It doubles before the third."""
KEPT_S = 300.0
"""Longer than a message waits for its next attempt."""
MOST_KEPT = 100_000


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of the store, which may be incomplete."""

    devices: DevicesByContact
    unanswered: frozenset[int] = frozenset()
    failure: Exception | None = None
    """Why some are unanswered."""


class DeviceManager:
    """The first query looks for credentials and a region: a process that never asks needs neither.

    Answers that came while the store had trouble are kept for a few minutes. A message that could not be answered
    completely then needs only the rest at its next attempt. Otherwise a message with more contacts than a throttling
    table answers in time would never finish.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # One attempt: we retry ourselves, and have to see throttling at once.
        concurrency = settings.dynamodb_concurrency
        self._client = QueryClient(DynamoDbAccess.from_settings(settings, attempts=1, connections=concurrency))
        self._pace = Pace()
        self._kept = KeptAnswers(seconds=KEPT_S, most=MOST_KEPT)

    async def find_by_contact_key(
        self, customer_id: CustomerId, application_code: str, contact_id: int
    ) -> list[ContactDevice]:
        """The devices of one contact in an application, ordered by client id."""
        found = await self.find_by_contact_keys(customer_id, application_code, [contact_id])
        return found.get(contact_id, [])

    async def find_by_contact_keys(
        self, customer_id: CustomerId, application_code: str, contact_ids: Collection[int]
    ) -> DevicesByContact:
        """The same for many contacts, with a query for each. Returns all of them or raises the error."""
        answers = await self.ask(customer_id, application_code, contact_ids)
        if answers.failure is not None:
            raise answers.failure
        return answers.devices

    async def ask(
        self, customer_id: CustomerId, application_code: str, contact_ids: Collection[int], *, waited_s: float = 0.0
    ) -> Answers:
        """The same, but after a failure it returns what was answered until then.

        The first failing query ends the work: contacts that still wait are not asked for. A throttled query does not
        end it before DYNAMODB_PATIENCE_MS is over, of which the caller has used up `waited_s` already.
        """
        known = self._kept.find(customer_id, application_code, contact_ids)
        fresh: dict[int, Answer] = {}
        waiting = deque(contact_id for contact_id in contact_ids if contact_id not in known)
        until = time.monotonic() + self._settings.dynamodb_patience_ms / 1000 - waited_s
        at_once = min(self._settings.dynamodb_concurrency, len(waiting))
        asking = [
            asyncio.ensure_future(self._work(customer_id, application_code, waiting, fresh, until))
            for _ in range(at_once)
        ]
        failure: Exception | None = None
        try:
            await asyncio.gather(*asking)
        except Exception as error:  # noqa: BLE001  # returned as `failure`
            failure = error
        finally:
            for one in asking:
                one.cancel()
        if failure is None and waiting:
            failure = ThrottledError(f"DynamoDB throttles: {len(waiting)} of {len(contact_ids)} contacts still wait")
        if failure is not None or self._pace.is_slow:
            self._kept.keep(customer_id, application_code, fresh)
        answered = known | fresh
        return Answers(
            {contact_id: answered[contact_id] for contact_id in contact_ids if answered.get(contact_id)},
            frozenset(contact_id for contact_id in contact_ids if contact_id not in answered),
            failure,
        )

    async def _work(
        self,
        customer_id: CustomerId,
        application_code: str,
        waiting: deque[int],
        answered: dict[int, Answer],
        until: float,
    ) -> None:
        """Ask for one contact after the other while some wait and time is left. Several of these share the work."""
        while waiting:
            turn = await self._pace.turn(until)
            if not waiting or (self._pace.is_slow and turn >= until):
                return
            contact_id = waiting.popleft()
            try:
                answered[contact_id] = await self._query_patiently(customer_id, application_code, contact_id)
            except Exception as error:
                if not is_throttling(error):
                    raise
                if not self._pace.is_slow:
                    log.warning("DynamoDB throttles, asking more slowly", error=str(error))
                self._pace.throttled(turn)
                waiting.appendleft(contact_id)
            else:
                self._pace.answered()

    async def _query_patiently(self, customer_id: CustomerId, application_code: str, contact_id: int) -> Answer:
        for attempt in range(1, ATTEMPTS):
            try:
                return await self._query(customer_id, application_code, contact_id)
            except Exception as error:
                if is_throttling(error) or not is_transient(error):
                    raise
            await asyncio.sleep(backoff_s(attempt, first_s=PAUSE_S))
        return await self._query(customer_id, application_code, contact_id)

    def close(self) -> None:
        """Close the idle connections. Queries under way end by their time limit."""
        self._client.close()

    async def _query(self, customer_id: CustomerId, application_code: str, contact_id: int) -> Answer:
        prefix = f"{application_code}#"
        items = await self._client.devices(customer_id, contact_id, prefix)
        found = [device_of(contact_id, prefix, item) for item in items]
        # Skip devices that could never have registered: none of our topics and tables can hold their ids.
        return [device for device in found if is_identifier(device.client_id)]
