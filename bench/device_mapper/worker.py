"""A worker program of the device mapper's benchmark, see `bench.harness.workers`: one kind of work, timed by itself."""

import asyncio
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import structlog
from psycopg import AsyncConnection

from bench.device_mapper.tasks import Report, Task
from bench.device_mapper.workload import (
    APPLICATION,
    FIRST_TENANT,
    NOBODY,
    TOPICS,
    TX_TOPICS,
    Scenario,
    message_body,
    recipient,
    settings_for,
)
from clientmgr.base.arrays import bigint_array
from clientmgr.base.async_main import run_until_stopped
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.portions import portions
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Batch, ConsumerOptions, Message
from clientmgr.broker.postgres.publish import append_to_topics
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts.sending import SendingMessage, decode_message
from clientmgr.contracts.topics import NOT_SENT
from clientmgr.devices.contact_devices import DevicesByContact
from clientmgr.devices.legacy.dynamodb import DynamoDbAccess
from clientmgr.devices.legacy.items import device_of
from clientmgr.devices.legacy.manager import DeviceManager
from clientmgr.devices.repository import DeviceRepository, find_query
from clientmgr.sending.fetch import Strategy
from clientmgr.sending.mapping import Mapped, MessageMapper
from streaming.device_mapper import mapper
from streaming.runtime.daemon import consume_until_stopped

Work = Callable[[], Awaitable[int]]
"""Returns how many devices it was about."""

NO_MORE_FIELDS: frozenset[str] = frozenset()
"""Messages without a filter ask for addresses alone."""
TX_PER_S = 20
WARM_UP_S = 1.0


def settings_of(task: Task) -> Settings:
    fallback = task.strategy != Strategy.POSTGRES
    return settings_for(task.url, client_fetcher_fallback_enabled=fallback, dynamodb_endpoint=task.dynamodb_url)


def scenario_of(task: Task) -> Scenario:
    return Scenario(task.recipients, task.devices, task.filtered, task.tenants)


async def prepare_daemon(task: Task) -> Work:
    daemon = mapper.daemon(TOPICS)

    async def work() -> int:
        await consume_until_stopped(daemon, settings_of(task), asyncio.Event(), burst=True)
        return 0

    return work


async def prepare_contact_at_a_time(task: Task) -> Work:
    """The daemon as it would be without bulk reads: a query for each contact."""
    mapper.CONTACTS_A_FETCH = 1
    return await prepare_daemon(task)


async def prepare_repository(task: Task) -> Work:
    """The devices of all contacts, as the daemon reads them, and nothing done with them."""
    repository = DeviceRepository(KeyedHashes.from_settings(settings_for(task.url)))

    async def read(connection: AsyncConnection[Any], tenant: CustomerId, contacts: range) -> int:
        found = await repository.find_by_contact_keys(connection, tenant, APPLICATION, contacts, fields=NO_MORE_FIELDS)
        return sum(map(len, found.values()))

    return await _in_lanes(task, read)


async def prepare_bulk_fetch(task: Task) -> Work:
    """The limit: the daemon's query for all contacts, and its rows dropped as they are."""
    return await _in_lanes(task, _read_and_drop)


async def prepare_reads_and_appends(task: Task) -> Work:
    """What a mapper that takes no time at all would need: the same reads, and the same messages appended."""
    settings = settings_for(task.url)
    by_tenant: dict[CustomerId, list[SendingMessage]] = defaultdict(list)
    for _, body in scenario_of(task).bodies():
        tenant, message = decode_message(body)
        by_tenant[tenant].append(message)
    devices = await _all_devices(task)
    batches = [
        (tenant, *_mapped(messages, devices[tenant]))
        for tenant, of_tenant in by_tenant.items()
        for messages in portions(of_tenant, settings.device_mapper_postgres_messages)
    ]
    lanes = settings.device_mapper_postgres_batches
    opened = [await Database(task.url).connect_async(Role.WRITER) for _ in range(lanes)]

    async def lane(number: int) -> int:
        found = 0
        for tenant, contacts, publications in batches[number::lanes]:
            async with opened[number].transaction():
                for some in portions(contacts, mapper.CONTACTS_A_FETCH):
                    found += await _read_and_drop(opened[number], tenant, some)
                await append_to_topics(opened[number], publications)
        return found

    async def work() -> int:
        return sum(await asyncio.gather(*map(lane, range(lanes))))

    return work


def _mapped(
    messages: Sequence[SendingMessage], devices: DevicesByContact
) -> tuple[list[int], dict[str, list[Message]]]:
    """The contacts of these, and what a mapper publishes for them."""
    mapped = Mapped()
    for message in messages:
        _map(message, devices, mapped)
    contacts = [recipient.contact_id for message in messages for recipient in message.recipients]
    sent = {TOPICS.outputs[provider]: some for provider, some in mapped.sent.items()}
    return contacts, sent | {NOT_SENT: mapped.not_sent}


def _map(message: SendingMessage, devices: DevicesByContact, mapped: Mapped) -> None:
    one = MessageMapper(message, now_ms=time.time_ns() // 1_000_000, max_message_bytes=8_000_000)
    one.map(message.recipients, devices, mapped)


async def _all_devices(task: Task) -> dict[CustomerId, DevicesByContact]:
    async with await Database(task.url).connect_async(Role.READER) as connection:
        return {
            tenant: await DeviceRepository(KeyedHashes.from_settings(settings_for(task.url))).find_by_contact_keys(
                connection, tenant, APPLICATION, range(1, contacts + 1)
            )
            for tenant, contacts in scenario_of(task).contacts_of().items()
        }


async def _read_and_drop(connection: AsyncConnection[Any], tenant: CustomerId, contacts: Collection[int]) -> int:
    async with connection.cursor(binary=True) as cursor:
        parameters = {"application_code": APPLICATION, "contact_ids": bigint_array(contacts)}
        await cursor.execute(find_query(tenant, NO_MORE_FIELDS), parameters)
        return len(await cursor.fetchall())


async def _in_lanes(
    task: Task, read: Callable[[AsyncConnection[Any], CustomerId, range], Coroutine[Any, Any, int]]
) -> Work:
    """Read a thousand contacts at a time, on as many connections as the daemon has."""
    lanes = _lanes(task, settings_for(task.url).device_mapper_postgres_batches)
    opened = [await Database(task.url).connect_async(Role.WRITER, autocommit=True) for _ in lanes]

    async def lane(number: int) -> int:
        return sum([await read(opened[number], tenant, contacts) for tenant, contacts in lanes[number]])

    async def work() -> int:
        return sum(await asyncio.gather(*map(lane, range(len(lanes)))))

    return work


async def prepare_assembly(task: Task) -> Work:
    """Decoding, filter, language, assembly and encoding of the same messages, with all devices in memory."""
    devices = await _all_devices(task)
    bodies = [body for _, body in scenario_of(task).bodies()]

    async def work() -> int:
        sent = 0
        for body in bodies:
            tenant, message = decode_message(body)
            mapped = Mapped()
            _map(message, devices[tenant], mapped)
            sent += sum(map(len, mapped.sent.values()))
        return sent

    return work


async def prepare_dynamodb_queries(task: Task) -> Work:
    """The limit of a strategy that asks DynamoDB: the same queries by the same client, and nothing else."""
    manager = DeviceManager(settings_of(task))
    await manager.find_by_contact_key(CustomerId(FIRST_TENANT), APPLICATION, NOBODY)  # it finds out where to ask

    async def work() -> int:
        found = 0
        for tenant, contacts in scenario_of(task).contacts_of().items():
            devices = await manager.find_by_contact_keys(tenant, APPLICATION, range(1, contacts + 1))
            found += sum(map(len, devices.values()))
        manager.close()
        return found

    return work


async def prepare_boto3_queries(task: Task) -> Work:
    """The same queries by boto3 in as many threads, each answer made into devices: what our own client replaced."""
    settings = settings_of(task)
    concurrency = settings.dynamodb_concurrency
    client = DynamoDbAccess.from_settings(settings, attempts=1, connections=concurrency).client()
    prefix = f"{APPLICATION}#"

    def devices(tenant: CustomerId, contact: int) -> int:
        page = client.query(
            TableName=settings.dynamodb_devices_table,
            KeyConditionExpression="contactKey = :contact AND begins_with(deviceKey, :application)",
            ExpressionAttributeValues={":contact": {"S": f"{tenant}#{contact}"}, ":application": {"S": prefix}},
        )
        return len([device_of(contact, prefix, item) for item in page["Items"]])

    def all_devices() -> int:
        with ThreadPoolExecutor(concurrency) as threads:
            asked = [
                threads.submit(devices, tenant, contact)
                for tenant, contacts in scenario_of(task).contacts_of().items()
                for contact in range(1, contacts + 1)
            ]
            return sum(one.result() for one in asked)

    async def work() -> int:
        return await asyncio.to_thread(all_devices)

    return work


async def prepare_tx_mapper(task: Task) -> Work:
    """A mapper of transactional messages, until it is killed or whoever started it is gone."""

    async def work() -> int:
        stop = asyncio.Event()
        asyncio.get_running_loop().run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: stop.set())
        await consume_until_stopped(mapper.daemon(TX_TOPICS), settings_of(task), stop)
        return 0

    return work


async def measure_latency(task: Task, report: Report) -> None:
    """Publish single messages at a steady pace; the time from there until a sender would have each in hand."""
    settings = settings_for(task.url)
    sent_at: dict[str, float] = {}
    stop, all_received = asyncio.Event(), asyncio.Event()
    expected = int(task.seconds * TX_PER_S)

    async def receive(batch: Batch) -> None:
        now = time.perf_counter()
        for received in batch.messages:
            message_id = json.loads(received.data)["messageId"]
            report.latencies_ms.append((now - sent_at[message_id]) * 1000)
        if len(report.latencies_ms) == expected:
            all_received.set()

    async with PostgresBroker(Database(task.url), settings) as broker:
        output = TX_TOPICS.outputs["apple"]
        await broker.ensure_subscription("bench-receiver", output, from_start=False)
        options = ConsumerOptions(batch_size=100)
        receiving = asyncio.create_task(broker.consume("bench-receiver", receive, options=options, stop=stop))
        started = time.perf_counter()
        for number in range(expected):
            await asyncio.sleep(max(0.0, started + number / TX_PER_S - time.perf_counter()))
            tenant = CustomerId(FIRST_TENANT + number % task.tenants)
            # Contacts whose device is Apple's: one topic to listen to.
            body = message_body(tenant, f"tx-{number}", [recipient(3 + 4 * (number % 100))], filtered=False)
            sent_at[f"tx-{number}"] = time.perf_counter()
            await broker.publish(TX_TOPICS.input, [Message(body, str(tenant))])
        async with asyncio.timeout(30):
            await all_received.wait()
        stop.set()
        await receiving
    report.amount = len(sent_at)
    del report.latencies_ms[: int(WARM_UP_S * TX_PER_S)]


KINDS: dict[str, Callable[[Task], Awaitable[Work]]] = {
    "daemon": prepare_daemon,
    "contact-at-a-time": prepare_contact_at_a_time,
    "repository": prepare_repository,
    "bulk-fetch": prepare_bulk_fetch,
    "reads-and-appends": prepare_reads_and_appends,
    "assembly": prepare_assembly,
    "dynamodb-queries": prepare_dynamodb_queries,
    "boto3-queries": prepare_boto3_queries,
    "tx-mapper": prepare_tx_mapper,
}


def _lanes(task: Task, connections: int) -> list[list[tuple[CustomerId, range]]]:
    """Our share of all thousands of contacts, over our connections."""
    thousands = [
        (tenant, range(start, min(start + mapper.CONTACTS_A_FETCH, contacts + 1)))
        for tenant, contacts in scenario_of(task).contacts_of().items()
        for start in range(1, contacts + 1, mapper.CONTACTS_A_FETCH)
    ]
    ours = thousands[task.worker :: task.workers]
    return [ours[number::connections] for number in range(connections)]


async def _run(task: Task) -> Report:
    report = Report()
    if task.kind == "latency":
        _wait_for_go()
        await measure_latency(task, report)
        return report
    work = await KINDS[task.kind](task)
    _wait_for_go()
    wall, cpu = time.perf_counter(), time.process_time()
    report.amount = await work()
    report.wall_s, report.cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    return report


async def _run_and_report(task: Task) -> None:
    print(json.dumps(asdict(await _run(task))), flush=True)


def _wait_for_go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def main() -> None:
    # The stand-in asks for none, but boto3 sends nothing without.
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    task = Task(**json.loads(sys.argv[1]))
    # On the loop that daemons run on.
    run_until_stopped(lambda _: _run_and_report(task))


if __name__ == "__main__":
    main()
