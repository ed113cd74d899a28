"""The OpenAPI document says what the intake does: calls made up from it, good and bad, are answered as it says."""

from typing import Any

import anyio.to_thread
import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from clientmgr.contracts import topics
from clientmgr.contracts.device_events import decode_event
from streaming.intake.routes import DEVICE_ROUTES
from tests.intake.door import Door

pytestmark = pytest.mark.anyio

EXAMPLES = {GenerationMode.POSITIVE: 12, GenerationMode.NEGATIVE: 8}


# The intake runs beside it in the same process; Hypothesis takes its jitter for randomness in a strategy.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
async def test_every_operation_does_what_the_document_says(door: Door) -> None:
    document = (await door.client.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    operations = [method for path in document["paths"].values() for method in path]
    assert len(operations) == len(DEVICE_ROUTES) + 3
    for mode in EXAMPLES:
        await anyio.to_thread.run_sync(_fuzz, document, f"http://127.0.0.1:{door.port}", door.server_key, mode)
    logged = door.rig.topic(topics.WRITER)
    assert len(logged) > 20
    for one in logged:
        decode_event(one.data)
        assert (one.event["customerId"], one.event["applicationCode"]) == (7, "A")


def _fuzz(document: dict[str, Any], address: str, key: str, mode: GenerationMode) -> None:
    # It would make up keys, which ours replaces: test_keys covers who is let in.
    without_keys = {**document, "security": [], "components": {"schemas": document["components"]["schemas"]}}
    schema = schemathesis.openapi.from_dict(without_keys)
    headers = {"Authorization": f"Bearer {key}"}
    with requests.Session() as session:
        for result in schema.get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()
            if mode is GenerationMode.NEGATIVE and not (operation.query or operation.path_parameters or operation.body):
                continue

            @settings(
                max_examples=EXAMPLES[mode],
                derandomize=True,
                deadline=None,
                database=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def call(case: Any) -> None:
                case.call_and_validate(
                    base_url=address,
                    session=session,
                    headers=headers,
                    # A schema can't say that a time is not in the future, or how many bytes and levels there may be.
                    excluded_checks=[ignored_auth, positive_data_acceptance],
                )

            call()


async def test_health_is_open_to_all(door: Door) -> None:
    answer: httpx.Response = await door.call("GET", "/healthz", key="")
    assert (answer.status_code, answer.text) == (200, "ok")
