"""The daemon: reads personalised messages, finds the devices, and publishes what each of them is to get.

What one message gives and its acknowledgement belong together: on PostgreSQL they are one transaction, on Pub/Sub the
acknowledgement comes last and the ids are the same when a message comes again.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.daemon_process import DaemonWork
from clientmgr.base.errors import classify
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.logs import get_logger
from clientmgr.base.portions import portions as in_portions
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import DONE, Batch, ConsumerOptions, Outcome, ReceivedMessage
from clientmgr.contracts.daemons import device_mapper_process
from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.sending import Recipient, SendingMessage, decode_message
from clientmgr.contracts.topics import DEVICE_MAPPER_ERRORS, NOT_SENT, DeviceMapperTopics, SendingType
from clientmgr.devices.legacy.manager import DeviceManager
from clientmgr.devices.legacy.start_check import check_legacy_store
from clientmgr.legacy_migration.fallback_answers import FallbackAnswers
from clientmgr.sending import metrics
from clientmgr.sending.configuration import completed, needs_configuration
from clientmgr.sending.fetch import DeviceFetcher, Fetched, Strategy, choose_strategy
from clientmgr.sending.mapping import Mapped, MessageMapper, distinct
from clientmgr.tenants.applications import ApplicationCache
from clientmgr.tenants.flippers import FlipperCache
from streaming.runtime.daemon import Daemon, Services
from streaming.runtime.failures import error_attributes, pass_on
from streaming.runtime.retrying import settle_failures
from streaming.runtime.tenant_batches import Failures, TenantBatches, Work

log = get_logger(__name__)

CONTACTS_A_FETCH = 1000
RECIPIENTS_A_TURN = 100
"""A millisecond or two; then whoever else has something to do is let through."""


@dataclass
class Job:
    """A message on its way through a batch."""

    position: int
    mapper: MessageMapper
    strategy: Strategy
    recipients: Sequence[Recipient]
    mapped: Mapped = field(default_factory=Mapped)
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Portion:
    """Recipients, of one message or of several small ones, whose devices are fetched together."""

    application_code: str
    strategy: Strategy
    parts: list[tuple[Job, Sequence[Recipient]]]

    def contact_ids(self) -> list[int]:
        return list({recipient.contact_id: None for _, some in self.parts for recipient in some})

    def fields(self) -> frozenset[str]:
        """What has to be known of a device besides its address."""
        return frozenset[str]().union(*(job.mapper.fields for job, _ in self.parts))


class DeviceMapper:
    """Handles batches of one `sending-<batch|tx>-devicemapper-<dg>`."""

    def __init__(self, services: Services, topics: DeviceMapperTopics) -> None:
        settings = services.settings
        self._settings = settings
        self._type = topics.sending_type
        self._outputs = topics.outputs
        self._flippers = FlipperCache(settings.flipper_refresh_ms)
        self._applications = ApplicationCache(settings.flipper_refresh_ms)
        manager = DeviceManager(settings)
        services.closing.callback(manager.close)
        self._fetcher = DeviceFetcher(manager, KeyedHashes.from_settings(settings))
        self._fallback_answers = FallbackAnswers()
        self._tenants = TenantBatches(services, self._map)

    async def __call__(self, batch: Batch) -> Sequence[Outcome]:
        outcomes: list[Outcome] = [DONE] * len(batch.messages)
        work = await self._decode(batch, outcomes)
        failures = await self._tenants.run(batch, work)
        failures |= _failures_of(work)
        settle_failures(batch, outcomes, failures, most_attempts=self._settings.broker_max_attempts, give_up=give_up)
        for one in work:
            if one.position not in failures:
                self._publish(batch, one.item.mapped)
        await self._fallback_answers.record(batch.connection)
        return outcomes

    async def _decode(self, batch: Batch, outcomes: list[Outcome]) -> list[Work[Job]]:
        flippers = await self._flippers.current(batch.connection)
        decoded: dict[int, tuple[CustomerId, SendingMessage]] = {}
        for position, received in enumerate(batch.messages):
            try:
                decoded[position] = decode_message(received.data)
            except InvalidMessageError as error:
                outcomes[position] = give_up(batch, received, error)
            await give_way()
        applications = await self._applications.current(
            batch.connection,
            [
                (customer, message.application_code)
                for customer, message in decoded.values()
                if needs_configuration(message)
            ],
        )
        now_ms = time.time_ns() // 1_000_000
        work = []
        for position, (customer_id, message) in decoded.items():
            try:
                mapper = MessageMapper(
                    completed(message, applications.get((customer_id, message.application_code))),
                    now_ms=now_ms,
                    max_message_bytes=self._settings.broker_max_message_bytes,
                )
            except InvalidMessageError as error:
                outcomes[position] = give_up(batch, batch.messages[position], error)
                continue
            strategy = choose_strategy(flippers, customer_id, self._settings)
            job = Job(position, mapper, strategy, distinct(message.recipients))
            work.append(Work(position, customer_id, job))
            await give_way()
        return work

    async def _map(self, connection: AsyncConnection[Any], jobs: Mapping[CustomerId, Sequence[Job]]) -> None:
        for customer_id, of_tenant in jobs.items():
            await self._map_tenant(connection, customer_id, of_tenant)

    async def _map_tenant(self, connection: AsyncConnection[Any], customer_id: CustomerId, jobs: Sequence[Job]) -> None:
        """Map all messages of a tenant. It may be called again for the same: then from the beginning.

        PostgreSQL's errors are raised, for they end the transaction that we are in. Any other costs only the messages
        it happened to.
        """
        for job in jobs:
            job.mapped, job.error = Mapped(), None
        asked: tuple[Portion, asyncio.Task[Fetched]] | None = None
        try:
            for portion in itertools.chain(portions(jobs), [None]):
                answered = None if asked is None else (asked[0], await asked[1])
                asked = None
                if portion is not None:
                    asked = portion, asyncio.create_task(self._fetch(connection, customer_id, portion))
                if answered is not None:
                    await give_way()  # the store is asked for the next ones while we map these
                    await _map_portion(*answered)
        finally:
            if asked is not None:
                asked[1].cancel()
                await asyncio.wait([asked[1]])

    async def _fetch(self, connection: AsyncConnection[Any], customer_id: CustomerId, portion: Portion) -> Fetched:
        contacts = portion.contact_ids()
        fetched = await self._fetcher.fetch(
            connection, customer_id, portion.application_code, contacts, portion.strategy, fields=portion.fields()
        )
        if portion.strategy is Strategy.POSTGRES_THEN_DYNAMODB:
            self._fallback_answers.note(customer_id, len(contacts), len(fetched.from_dynamodb))
        return fetched

    def _publish(self, batch: Batch, mapped: Mapped) -> None:
        for provider, messages in mapped.sent.items():
            batch.publish(self._outputs[provider], messages, encoded_here=True)
            metrics.SENT.labels(self._type, provider).inc(len(messages))
        batch.publish(NOT_SENT, mapped.not_sent, encoded_here=True)
        for reason, count in mapped.reasons.items():
            metrics.NOT_SENT.labels(self._type, reason).inc(count)


async def _map_portion(portion: Portion, fetched: Fetched) -> None:
    for job, recipients in portion.parts:
        if fetched.failure is not None and any(one.contact_id in fetched.unanswered for one in recipients):
            job.error = fetched.failure
        for some in in_portions(recipients, RECIPIENTS_A_TURN):
            if job.error is not None:
                break
            try:
                job.mapper.map(some, fetched.devices, job.mapped)
            except Exception as error:  # noqa: BLE001  # kept for the message
                job.error = error
            await give_way()


async def give_way() -> None:
    """To the other batches in hand. One that is about to commit holds what others, tx traffic too, wait for."""
    await asyncio.sleep(0)


def _failures_of(work: Sequence[Work[Job]]) -> Failures:
    """What went wrong with single messages, told in the log."""
    failures: Failures = {}
    for one in work:
        error = one.item.error
        if error is not None:
            failures[one.position] = error
            log.warning(
                "not mapped",
                customer_id=one.customer_id,
                message_id=one.item.mapper.message.message_id,
                kind=classify(error).value,
                error_type=type(error).__name__,
                error=str(error).strip(),
            )
    return failures


def portions(jobs: Sequence[Job]) -> Iterator[Portion]:
    """The jobs' recipients in portions of a query's size: large messages in parts, small ones of a kind together."""
    open_portions: dict[tuple[str, Strategy], tuple[Portion, int]] = {}
    for job in jobs:
        key = (job.mapper.message.application_code, job.strategy)
        portion, size = open_portions.pop(key, (Portion(*key, []), 0))
        at = 0
        while at < len(job.recipients):
            if job.error is not None:
                break
            some = job.recipients[at : at + CONTACTS_A_FETCH - size]
            portion.parts.append((job, some))
            at += len(some)
            size += len(some)
            if size >= CONTACTS_A_FETCH:
                yield portion
                portion, size = Portion(*key, []), 0
        if size:
            open_portions[key] = (portion, size)
    for portion, _ in open_portions.values():
        yield portion


def give_up(batch: Batch, message: ReceivedMessage, error: Exception) -> Outcome:
    return pass_on(batch, message, DEVICE_MAPPER_ERRORS, error_attributes(error), error)


def daemon(topics: DeviceMapperTopics) -> Daemon:
    """The mapper of one type of traffic and one delivery group."""
    return Daemon.of(
        device_mapper_process(topics),
        lambda services: DeviceMapper(services, topics),
        options=consumer_options,
        check=check_legacy_store,
    )


def work(settings: Settings, *, sending_type: SendingType, delivery_group: str, burst: bool) -> DaemonWork:
    return daemon(DeviceMapperTopics(sending_type, delivery_group)).work(settings, burst=burst)


def consumer_options(settings: Settings) -> ConsumerOptions:
    """PostgreSQL alone answers sooner than both stores do: then more is taken in hand at once."""
    both_stores = settings.mapper_reads_legacy_store
    return ConsumerOptions(
        batch_size=settings.device_mapper_messages if both_stores else settings.device_mapper_postgres_messages,
        concurrency=settings.device_mapper_batches if both_stores else settings.device_mapper_postgres_batches,
        wait_period_ms=settings.broker_wait_period_ms,
        max_attempts=settings.broker_max_attempts,
    )
