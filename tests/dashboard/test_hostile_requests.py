"""What no client of ours would send gets 400 and says where it is wrong; nothing of it is our fault (500)."""

from typing import Any

import httpx
import pytest

from clientmgr_dashboard.pages import find_pages
from tests.dashboard.house import BUSY, Visit
from tests.dashboard.test_api import headers_of

OPERATIONS = [operation for page in find_pages() for operation in page.operations]
POSTS = [operation for operation in OPERATIONS if operation.method == "POST"]
GETS = [operation for operation in OPERATIONS if operation.method == "GET"]
DEEP = 100_000

BODIES: dict[str, bytes] = {
    "deep arrays": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep in a field": b'{"ids":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep but readable": b'{"ids":' + b"[" * 900 + b"]" * 900 + b"}",
    "deep and unknown": b'{"unknown":' + b"[" * 900 + b"]" * 900 + b"}",
    "bad UTF-8": b'{"topic":"\xff\xfe"}',
    "bad UTF-8 as a name": b'{"\xff":1}',
    "overlong UTF-8": b'{"topic":"\xc0\x80"}',
    "UTF-8 surrogate": b'{"topic":"\xed\xa0\x80"}',
    "lone surrogate": b'{"topic":"\\ud800","contains":"\\ud800","target":"\\udfff","reason":"\\ud800"}',
    "NUL": b'{"topic":"a\\u0000b","contains":"a\\u0000b","reason":"\\u0000","name":"\\u0000"}',
    "huge integer": b'{"customerId":' + b"9" * 5000 + b',"ids":[' + b"9" * 5000 + b"]}",
    "huge float": b'{"customerId":1e308,"ids":[1e999],"newestId":-1e308}',
    "not a number": b'{"customerId":NaN}',
    "a number alone": b"1",
    "null": b"null",
    "nothing": b"",
    "half": b'{"ids":[1',
    "two": b"{}{}",
    "UTF-16": '{"ids":[1]}'.encode("utf-16"),
}
QUERIES: dict[str, str] = {
    "bad UTF-8": "%FF%FE",
    "overlong UTF-8": "%C0%80",
    "UTF-8 surrogate": "%ED%A0%80",
    "NUL": "a%00b",
    "huge integer": "9" * 5000,
    "huge float": "1e999",
    "not a number": "NaN",
    "deep": "%5B" * 3000,
    "half an escape": "%",
}


@pytest.fixture(scope="module")
def sent(address: str) -> dict[str, Any]:
    with Visit(base_url=address, timeout=30) as visit:
        headers = headers_of(visit)
        return {"headers": {**headers, "Content-Type": "application/json"}, "cookies": dict(visit.cookies)}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_hostile_body_is_the_clients_fault(address: str, sent: dict[str, Any], body: bytes) -> None:
    with httpx.Client(base_url=address, timeout=30, **sent) as visit:
        for operation in POSTS:
            answer = visit.post(f"/api/v1{operation.path}", content=body)
            assert answer.status_code == 400, (operation.path, answer.status_code, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["detail"], operation.path


@pytest.mark.parametrize("kind", ["bad UTF-8", "NUL", "huge integer"])
def test_a_hostile_query_is_the_clients_fault(address: str, kind: str) -> None:
    value = QUERIES[kind]
    with Visit(base_url=address, timeout=30) as visit:
        for operation in GETS:
            path = operation.path.replace("{customerId}", str(BUSY)).replace("{id}", "1")
            for field in operation.request.__struct_encode_fields__:
                answer = visit.get(f"/api/v1{path}?{field}={value}")
                assert answer.status_code < 500, (path, field, answer.status_code, answer.text)
                if answer.status_code == 400:
                    assert answer.json()["detail"]


def test_bad_utf_8_in_a_query_is_not_read_as_something_else(visit: Visit) -> None:
    for path in ("/api/v1/tenants?search=%FF", "/api/v1/tenants?%FF=1", "/tenants?search=%C0%80"):
        answer = visit.get(path)
        assert answer.status_code == 400, path
        assert "UTF-8" in answer.text
    assert "`$.search`" in visit.get("/api/v1/tenants?search=%FF").json()["detail"]


@pytest.mark.parametrize(
    "path", ["/tenants/%FF", "/tenants/%00", "/api/v1/tenants/%FF", "/%ED%A0%80", "/tenants/" + "9" * 5000]
)
def test_a_hostile_path_is_the_clients_fault(visit: Visit, path: str) -> None:
    assert visit.get(path).status_code in (400, 404)


@pytest.mark.parametrize("value", QUERIES.values(), ids=QUERIES)
def test_pages_take_a_hostile_query_as_well(visit: Visit, value: str) -> None:
    for path, fields in {
        "/tenants": ("search", "page", "sort"),
        f"/tenants/{BUSY}": ("days",),
        "/devices": ("customerId", "contactId", "clientId", "applicationCode"),
        "/failures": ("contains", "topic", "customerId", "before", "since", "state"),
        f"/audit/{BUSY}": ("before",),
        "/sign-in": ("next",),
    }.items():
        for field in fields:
            assert visit.get(f"{path}?{field}={value}").status_code < 500, (path, field)


@pytest.mark.parametrize(
    "body",
    [
        b"customerId=%FF",
        b"customerId=\xff",
        b"customerId=1&reason=%00&topic=%00&clientId=%00",
        b"customerId=" + b"9" * 5000,
        b"&" * 5000,
    ],
)
def test_a_hostile_form_is_the_clients_fault(visit: Visit, body: bytes) -> None:
    headers = {"X-CSRF-Token": visit.token, "Content-Type": "application/x-www-form-urlencoded"}
    for path in ("/switches/exclusions", "/switches/flippers", "/failures/drop", "/devices/reveal"):
        assert visit.post(path, content=body, headers=headers).status_code == 400, path
