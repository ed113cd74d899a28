"""What Dagster's daemon does with a sensor, step by step, so that a test can stop it between any two."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dagster as dg

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts.publishers import PUBLISHER_ATTRIBUTE
from clientmgr_dagster.definitions import build_definitions
from clientmgr_dagster.resources import TenantsResource


@dataclass
class Rig:
    """Evaluates sensors on a real instance and does what they ask for, at once."""

    instance: dg.DagsterInstance
    cursors: dict[str, str] = field(default_factory=dict)
    run_keys: set[str] = field(default_factory=set)
    runs: list[dg.RunRequest] = field(default_factory=list)
    definitions: dg.Definitions = field(default_factory=build_definitions)

    def evaluate(self, sensor: dg.SensorDefinition) -> dg.SensorResult | dg.SkipReason:
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursors.get(sensor.name), resources={"tenants": TenantsResource()}
        ) as context:
            result = sensor(context)
        assert isinstance(result, (dg.SensorResult, dg.SkipReason))
        return result

    def tick(self, sensor: dg.SensorDefinition, *, steps: int | None = None) -> bool:
        """One evaluation and its consequences; `steps`: only so many of them, as if killed then. False: nothing new."""
        result = self.evaluate(sensor)
        if isinstance(result, dg.SkipReason):
            return False
        for step in itertools.islice(self._consequences(sensor, result), steps):
            step()
        return True

    def settle(self, *sensors: dg.SensorDefinition) -> None:
        """Ticks until no sensor has anything to do."""
        for _ in range(20):
            at_work = [sensor.name for sensor in sensors if self.tick(sensor)]
            if not at_work:
                return
        raise AssertionError("the sensors never come to rest")

    def _consequences(self, sensor: dg.SensorDefinition, result: dg.SensorResult) -> Iterator[Callable[[], Any]]:
        for request in result.dynamic_partitions_requests or []:
            for key in request.partition_keys:
                if isinstance(request, dg.AddDynamicPartitionsRequest):
                    yield partial(self.instance.add_dynamic_partitions, "tenants", [key])
                else:
                    yield partial(self.instance.delete_dynamic_partition, "tenants", key)
        for run in result.run_requests or []:
            yield partial(self._launch, sensor, run)
        if result.cursor is not None:
            yield lambda: self.cursors.update({sensor.name: str(result.cursor)})

    def _launch(self, sensor: dg.SensorDefinition, request: dg.RunRequest) -> None:
        """Dagster starts no second run under the same key."""
        if request.run_key is not None:
            if request.run_key in self.run_keys:
                return
            self.run_keys.add(request.run_key)
        self.runs.append(request)
        job = self.definitions.resolve_job_def(sensor.targets[0].job_name)
        result = job.execute_in_process(
            run_config=request.run_config,
            partition_key=request.partition_key,
            tags=dict(request.tags),
            instance=self.instance,
            raise_on_error=False,
        )
        assert result.success, f"run {request.run_key} failed"


def activation(customer_id: object, occurred_at: int, **more: object) -> dict[str, object]:
    return {"eventId": f"a-{occurred_at}", "customerId": customer_id, "occurredAt": occurred_at, **more}


def deletion(customer_id: object, occurred_at: int, **more: object) -> dict[str, object]:
    return {"requestedBy": "legal", **activation(customer_id, occurred_at, eventId=f"d-{occurred_at}", **more)}


def publish(
    database: Database, settings: Settings, topic: str, *bodies: dict[str, object], publisher: str = ""
) -> None:
    attributes = {PUBLISHER_ATTRIBUTE: publisher} if publisher else {}
    messages = [
        Message(json.dumps(body).encode(), str(body.get("customerId", "")), attributes=attributes) for body in bodies
    ]

    async def send() -> None:
        async with PostgresBroker(database, settings) as broker:
            await broker.ensure_topic(topic)
            await broker.publish(topic, messages)

    asyncio.run(send())
