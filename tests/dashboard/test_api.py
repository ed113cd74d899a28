"""The API: what the pages show, described truly. Every operation is called as its own document says, and otherwise."""

from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from clientmgr_dashboard.access.authentication import COOKIE
from tests.dashboard.house import BUSY, QUIET, House, Visit, serving, sign_in, write_users

EXAMPLES = {GenerationMode.POSITIVE: 6, GenerationMode.NEGATIVE: 3}
DOCUMENT = "/api/v1/openapi.json"
OF_WORDS = {
    path: [positive_data_acceptance]
    for path in (
        "/api/v1/applications",
        "/api/v1/applications/remove",
        "/api/v1/failures/edit",
        "/api/v1/intake-keys",
        "/api/v1/intake-keys/revoke",
        "/api/v1/tenants/rename",
        "/api/v1/tenants/delete",
    )
}
"""A schema can't say which languages and origins there are, that one field repeats another, what can be printed, nor
count bytes, nor what a topic carries."""


def headers_of(visit: Visit) -> dict[str, str]:
    return {"X-CSRF-Token": visit.get("/api/v1/session").json()["csrfToken"]}


def test_the_document_names_every_operation_and_its_types(visit: Visit) -> None:
    document = visit.get(DOCUMENT).json()
    assert document["openapi"] == "3.1.0"
    assert len(document["paths"]) == 47
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["responses"]["200"], (path, method)
            in_path = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
            assert all(f"{{{name}}}" in path for name in in_path)
    tenants = document["paths"]["/api/v1/tenants"]["get"]
    assert {one["name"] for one in tenants["parameters"]} == {
        "search",
        "status",
        "show",
        "sort",
        "order",
        "page",
        "perPage",
    }


def test_pages_and_api_say_the_same(visit: Visit) -> None:
    rows = visit.get("/api/v1/tenants?sort=customerId&order=asc&perPage=1").json()
    assert [row["customerId"] for row in rows["items"]] == [BUSY]
    assert (rows["page"], rows["perPage"], rows["total"]) == (1, 1, 2)
    assert f"{rows['items'][0]['devices']:,}" in visit.see("/tenants")


def test_what_grows_is_read_backwards_to_its_end(visit: Visit) -> None:
    seen: list[int] = []
    before: int | None = None
    while True:
        parameters: dict[str, Any] = {"limit": 3, **({"before": before} if before else {})}
        part = visit.get(f"/api/v1/audit/{BUSY}", params=parameters).json()
        seen += [row["seq"] for row in part["items"]]
        before = part["next"]
        if before is None:
            break
    assert seen == list(range(len(seen), 0, -1))


def test_history_is_read_backwards_to_its_end(visit: Visit) -> None:
    url, times, before = f"/api/v1/tenants/{BUSY}/history", [], None
    while True:
        part = visit.get(url, params={"limit": 7, "days": 365, **({"before": before} if before else {})}).json()
        times += [point["collectedAt"] for point in part["items"]]
        before = part["next"]
        if before is None:
            break
    assert len(times) == len(set(times)) == 41


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("/tenants?page=0", 400, "Expected `int` >= 1 - at `$.page`"),
        ("/tenants?sort=password", 400, "Invalid enum value 'password' - at `$.sort`"),
        ("/failures?customerId=null", 400, "Expected a value, got `null` - at `$.customerId`"),
        ("/tenants/404", 404, "customer 404 was never activated"),
        ("/devices/by-contact?customerId=404&contactId=1", 404, "customer 404 was never activated"),
        (f"/devices/by-contact?customerId={BUSY}", 400, "Object missing required field `contactId`"),
        ("/failures/d999999", 404, "there is no failed message d999999"),
        ("/nowhere", 404, "There is nothing here"),
    ],
)
def test_errors_have_one_format(visit: Visit, path: str, status: int, detail: str) -> None:
    answer = visit.get(f"/api/v1{path}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(answer.json()) <= {"title", "status", "detail", "type"}
    assert detail in answer.json()["detail"]


def test_what_changes_something_needs_json_and_the_sessions_token(visit: Visit) -> None:
    headers = headers_of(visit)
    form = {"name": "USE_POSTGRES_DEVICE_MAPPER", "customerId": QUIET, "enabled": True}
    assert visit.post("/api/v1/flippers", json=form).status_code == 403
    assert visit.post("/api/v1/flippers", data=form, headers=headers).status_code == 415
    assert visit.post("/api/v1/flippers", json=form, headers=headers).json() == {"changed": True}
    assert visit.post("/api/v1/flippers", json={**form, "enabled": None}, headers=headers).json() == {"changed": True}
    assert visit.put("/api/v1/flippers", json=form, headers=headers).status_code == 405


# The dashboard runs in a thread beside it; Hypothesis takes its pools' jitter for randomness in a strategy.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
def test_every_operation_does_what_its_document_says(spare_house: House, tmp_path: Path, mode: GenerationMode) -> None:
    """Calls made up from the document: no crash, and no answer that it does not describe."""
    users = write_users(tmp_path)
    with (
        serving(spare_house.settings.model_copy(update={"dashboard_users_file": str(users)})) as address,
        requests.Session() as session,
    ):
        cookies = {COOKIE: sign_in(address, "otto")}
        me = httpx.get(f"{address}/api/v1/session", cookies=cookies).json()
        schema = schemathesis.openapi.from_dict(httpx.get(f"{address}{DOCUMENT}", cookies=cookies).json())
        calls = 0
        for result in schema.get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()
            if mode is GenerationMode.NEGATIVE and not (operation.query or operation.path_parameters or operation.body):
                continue  # there is nothing in it that could be wrong

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
                nonlocal calls
                calls += 1
                case.call_and_validate(
                    base_url=address,
                    session=session,
                    headers={"X-CSRF-Token": me["csrfToken"]},
                    cookies=cookies,
                    # It guesses passwords until it is stopped. test_access covers who is let in.
                    excluded_checks=[ignored_auth, *OF_WORDS.get(case.operation.path, ())],
                )

            call()
    assert calls > 20 * EXAMPLES[mode] / 2
