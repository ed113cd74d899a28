"""Our own client of DynamoDB's queries, beside AWS's signer and on a server that answers whatever it is told to."""

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from botocore.loaders import JSONFileLoader

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import is_throttling, is_transient
from clientmgr.devices.legacy import connections, http_answers, queries
from clientmgr.devices.legacy.dynamodb import DynamoDbAccess, Endpoint
from clientmgr.devices.legacy.http_answers import AnswerReader, ForeignAnswerError, GarbledAnswerError
from clientmgr.devices.legacy.queries import QueryClient
from clientmgr.devices.legacy.signing import Keys, Signer
from tests.device_mapper.dynamodb import TABLE, THROTTLED, DynamoDb

pytestmark = pytest.mark.anyio

Say = Callable[[asyncio.StreamWriter], Awaitable[None]]
ITEM = {"contactKey": {"S": "7#42"}, "deviceKey": {"S": "APP#c1"}}


# --- signing


@pytest.mark.parametrize("token", [None, "a-session's/token+="])
@pytest.mark.parametrize("at", [1_763_248_000.9, 1_763_251_199.0, 1_763_251_200.0])
def test_a_request_is_signed_as_aws_own_library_signs_it(token: str | None, at: float) -> None:
    signer = Signer(Keys("AKIA", "sec/ret", token), "eu-central-1", "127.0.0.1:8000", "/", "Query")
    for body in (b'{"TableName":"t"}', '{"ü":"☃"}'.encode()):
        signer.head(b"of another second", at - 1)
        head = signer.head(body, at)
        sent = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
        signed = {name: value for name, value in sent.items() if name.islower() and name != "x-amz-date"}
        theirs = AWSRequest("POST", "http://127.0.0.1:8000/", data=body, headers=signed)
        now = datetime.fromtimestamp(int(at), UTC)
        with mock.patch("botocore.auth.get_current_datetime", return_value=now):
            SigV4Auth(Credentials("AKIA", "sec/ret", token), "dynamodb", "eu-central-1").add_auth(theirs)
        assert sent["Authorization"] == theirs.headers["Authorization"]
        assert sent["x-amz-date"] == theirs.headers["X-Amz-Date"]
        assert head.startswith(b"POST / HTTP/1.1\r\n")
        assert int(sent["Content-Length"]) == len(body)


def test_keys_do_not_show_their_secret() -> None:
    assert "sec" not in repr(Keys("AKIA", "sec", "ret"))


# --- reading answers


def answer_of(*parts: bytes) -> http_answers.Answer | None:
    reader = AnswerReader()
    found = None
    for part in parts:
        found = reader.feed(part)
    return found


CHUNKS = b'4;x=y\r\n{"It\r\nA\r\nems": [42]\r\n1\r\n}\r\n0\r\nA: b\r\n\r\n'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n" + CHUNKS
WITH_LENGTH = b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nCONTENT-LENGTH:  15 \r\nX: y\r\n\r\n{"Items": [42]}'


@pytest.mark.parametrize("answer", [CHUNKED, WITH_LENGTH], ids=["chunked", "with a length"])
def test_an_answer_is_read_however_it_is_cut(answer: bytes) -> None:
    for at in range(len(answer)):
        assert AnswerReader().feed(answer[:at]) is None
        found = answer_of(answer[:at], answer[at:])
        assert found is not None
        assert (found.status, found.body, found.keeps_open) == (200, b'{"Items": [42]}', True)
    by_byte = answer_of(*(answer[at : at + 1] for at in range(len(answer))))
    assert by_byte is not None
    assert by_byte.body == b'{"Items": [42]}'


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}{}\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(GarbledAnswerError):
        answer_of(answer)


# --- a server that says what it is told


class Scripted:
    """Says the next thing to each request, the last one again and again."""

    def __init__(self, *says: Say) -> None:
        self._says = list(says)
        self.requests: list[dict[str, Any]] = []
        self.heads: list[bytes] = []
        self.opened = self.in_hand = self.most_in_hand = 0
        self._serving: list[asyncio.Task[None]] = []

    def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self._serving.append(asyncio.create_task(self._serve(reader, writer)))

    async def end(self) -> None:
        for one in self._serving:
            one.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer_all(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
                self.requests.append(json.loads(await reader.readexactly(length)))
                self.heads.append(head)
                self.in_hand += 1
                self.most_in_hand = max(self.most_in_hand, self.in_hand)
                try:
                    await (self._says.pop(0) if len(self._says) > 1 else self._says[0])(writer)
                finally:
                    self.in_hand -= 1


def saying(*parts: bytes, closing: bool = False) -> Say:
    async def say(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0)
        if closing:
            writer.close()

    return say


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def page(*items: dict[str, Any], last: dict[str, Any] | None = None) -> bytes:
    return json.dumps({"Items": items, "Count": len(items), **({"LastEvaluatedKey": last} if last else {})}).encode()


async def for_ever(_writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


WELL = saying(http(page(ITEM)))
CLOSING = saying(closing=True)


@dataclass(frozen=True)
class Known(DynamoDbAccess):
    """An access that AWS's library need not be asked for, which takes longer than a test."""

    credentials: Any = None

    def resolve(self) -> Endpoint:
        return Endpoint(self.endpoint, "eu-central-1", self.credentials, None, is_behind_proxy=False)


@contextlib.asynccontextmanager
async def asking(
    *says: Say, timeout_s: float = 30.0, most: int = 4, credentials: Any = None
) -> AsyncIterator[tuple[Scripted, QueryClient]]:
    scripted = Scripted(*says)
    server = await asyncio.start_server(scripted, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    keys = credentials or Credentials("key", "secret")
    client = QueryClient(Known(TABLE, url, timeout_s=timeout_s, connections=most, credentials=keys))
    try:
        yield scripted, client
    finally:
        client.close()
        server.close()
        await scripted.end()


async def ask(client: QueryClient, contact: int = 42, prefix: str = "APP#") -> list[dict[str, Any]]:
    return await client.devices(CustomerId(7), contact, prefix)


async def test_queries_share_a_connection_and_say_what_boto3_says() -> None:
    async with asking(WELL) as (server, client):
        assert [await ask(client) for _ in range(5)] == [[ITEM]] * 5
        await ask(client, prefix='q"\\ü#')
    assert server.opened == 1
    assert server.requests[0] == {
        "TableName": TABLE,
        "KeyConditionExpression": "contactKey = :contact AND begins_with(deviceKey, :application)",
        "ExpressionAttributeValues": {":contact": {"S": "7#42"}, ":application": {"S": "APP#"}},
    }
    assert server.requests[-1]["ExpressionAttributeValues"][":application"] == {"S": 'q"\\ü#'}


async def test_pages_are_put_together() -> None:
    key = {"contactKey": {"S": "7#42"}, "deviceKey": {"S": "APP#é"}}
    other = {**ITEM, "deviceKey": {"S": "APP#c2"}}
    pages = [saying(http(page(ITEM, last=key))), saying(http(page(last=key))), saying(http(page(other)))]
    async with asking(*pages) as (server, client):
        assert await ask(client) == [ITEM, other]
    assert [one.get("ExclusiveStartKey") for one in server.requests] == [None, key, key]


async def test_no_more_connections_are_open_than_allowed() -> None:
    async def slowly(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)
        await WELL(writer)

    async with asking(slowly, most=3) as (server, client):
        await asyncio.gather(*(ask(client) for _ in range(20)))
    assert (server.opened, server.most_in_hand, len(server.requests)) == (3, 3, 20)


async def test_a_kept_connection_that_the_server_gave_up_costs_nothing() -> None:
    async with asking(WELL, CLOSING, WELL) as (server, client):
        assert [await ask(client), await ask(client)] == [[ITEM]] * 2
    assert (server.opened, len(server.requests)) == (2, 3)


async def test_a_connection_that_the_server_closed_while_idle_is_not_used() -> None:
    async with asking(saying(http(page(ITEM)), closing=True), WELL) as (server, client):
        assert await ask(client) == [ITEM]
        await asyncio.sleep(0.05)
        assert await ask(client) == [ITEM]
    assert (server.opened, len(server.requests)) == (2, 2)


async def test_a_connection_that_was_idle_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LONGEST_IDLE_S", -1.0)
    async with asking(WELL) as (server, client):
        assert [await ask(client), await ask(client)] == [[ITEM]] * 2
    assert server.opened == 2


async def test_a_server_that_says_so_gets_a_new_connection_each_time() -> None:
    async with asking(saying(http(page(ITEM), "200 OK", "Connection: close"))) as (server, client):
        assert [await ask(client), await ask(client)] == [[ITEM]] * 2
    assert server.opened == 2


async def test_an_answer_that_ends_with_the_connection_is_read() -> None:
    async with asking(saying(b"HTTP/1.0 200 OK\r\n\r\n" + page(ITEM), closing=True)) as (_, client):
        assert await ask(client) == [ITEM]


CUT = http(page(ITEM))[:-5]


async def begin_and_wait(writer: asyncio.StreamWriter) -> None:
    writer.write(CUT)
    await for_ever(writer)


WRONG_SUM = http(page(ITEM), "200 OK", f"x-amz-crc32: {zlib.crc32(b'another')}")
UNWELL: dict[str, tuple[Say, type[Exception], str]] = {
    "hung up": (CLOSING, ConnectionError, "closed before it answered"),
    "cut in the head": (saying(b"HTTP/1.1 200", closing=True), GarbledAnswerError, "middle"),
    "cut in the body": (saying(CUT, closing=True), GarbledAnswerError, "middle"),
    "cut in a chunk": (saying(CHUNKED[:60], closing=True), GarbledAnswerError, "middle"),
    "longer than it says": (saying(http(b"{}") + b"{}"), GarbledAnswerError, "more bytes"),
    "wrong checksum": (saying(WRONG_SUM), GarbledAnswerError, "checksum"),
    "no JSON": (saying(http(b"<html>")), ForeignAnswerError, "no page of items"),
    "other JSON": (saying(http(b'{"Items": 3}')), ForeignAnswerError, "no page of items"),
    "no HTTP": (saying(b"-ERR unknown command\r\n\r\n"), ForeignAnswerError, "no HTTP"),
    "silent": (for_ever, TimeoutError, r"did not answer within 0.3 s"),
    "slow in the middle": (begin_and_wait, TimeoutError, "within 0.3 s"),
    "busy": (saying(http(b"", "503 Busy")), ClientError, "503"),
    "a proxy's error": (saying(http(b"<html>Bad gateway</html>", "502 Bad Gateway")), ClientError, "502"),
    "its own error": (saying(http(b'{"__type":"a#InternalServerError"}', "500 X")), ClientError, "InternalServerError"),
    "throttling": (saying(http(THROTTLED, "400 Bad Request")), ClientError, "ProvisionedThroughputExceeded"),
}


@pytest.mark.parametrize("how", UNWELL)
async def test_a_server_that_is_unwell_gives_an_error_that_may_pass_and_no_wrong_answer_later(how: str) -> None:
    say, kind, text = UNWELL[how]
    async with asking(say, WELL, timeout_s=0.3 if kind is TimeoutError else 30.0) as (_, client):
        with pytest.raises(kind, match=text) as raised:
            await ask(client)
        assert is_transient(raised.value)
        assert is_throttling(raised.value) is (how == "throttling")
        assert await ask(client) == [ITEM]


@pytest.mark.parametrize("code", ["AccessDeniedException", "ResourceNotFoundException"])
async def test_a_refusal_that_does_not_pass_is_boto3s_error(code: str) -> None:
    body = json.dumps({"__type": f"com.amazonaws.dynamodb#{code}", "Message": "No."}).encode()
    async with asking(saying(http(body, "400 Bad Request", "x-amzn-RequestId: R-1"))) as (_, client):
        with pytest.raises(ClientError, match=rf"\({code}\) when calling the Query operation: No\.") as raised:
            await ask(client)
    assert not is_transient(raised.value)
    assert raised.value.response["ResponseMetadata"]["RequestId"] == "r-1"


async def test_a_query_that_is_given_up_leaves_no_answer_for_the_next() -> None:
    late = {**ITEM, "deviceKey": {"S": "APP#late"}}

    async def late_answer(writer: asyncio.StreamWriter) -> None:
        asked.set()
        await given_up.wait()
        await saying(http(page(late)))(writer)

    asked, given_up = asyncio.Event(), asyncio.Event()
    async with asking(late_answer, WELL, most=1) as (_, client):
        first = asyncio.create_task(ask(client))
        await asked.wait()
        first.cancel()
        await asyncio.wait([first])
        given_up.set()
        assert await ask(client) == [ITEM]


async def test_a_server_that_is_not_there_is_named() -> None:
    for nowhere in ("127.0.0.1:1", "no-such-host.invalid:8000"):
        client = QueryClient(Known(TABLE, f"http://{nowhere}", credentials=Credentials("key", "secret")))
        with pytest.raises(ConnectionError, match=f"{nowhere} can't be reached"):
            await ask(client)


async def test_keys_that_were_renewed_are_signed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    class Renewing:
        number = 0

        def get_frozen_credentials(self) -> tuple[str, str, str]:
            self.number += 1
            return f"KEY-{self.number}", "secret", "token"

    monkeypatch.setattr(queries, "KEYS_ARE_FRESH_S", -1.0)
    async with asking(WELL, credentials=Renewing()) as (server, client):
        await ask(client)
        await ask(client)
    assert [b"Credential=KEY-%d/" % number in head for number, head in enumerate(server.heads, 1)] == [True, True]
    assert b"x-amz-security-token: token\r\n" in server.heads[0]


def test_what_aws_library_knows_of_all_services_is_read_once_for_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    access = DynamoDbAccess(TABLE, "http://127.0.0.1:1")
    access.client().close()
    monkeypatch.setattr(JSONFileLoader, "load_file", mock.Mock(side_effect=AssertionError("read again")))
    access.client().close()


async def test_a_real_server_gives_the_same_items_as_to_boto3(dynamodb: DynamoDb) -> None:
    attributes = {"pushSettings": {"a": {"b": [1, None, True]}}, "badge": 3, "blob": b"\x00\xff", "names": {"x", "y"}}
    for client_id in ("c1", "c2", "ü☃"):
        dynamodb.put(97, 5, "APP", client_id, **attributes)
    access = DynamoDbAccess(TABLE, dynamodb.url)
    boto3_client, client = access.client(), QueryClient(access)
    theirs = boto3_client.query(
        TableName=TABLE,
        KeyConditionExpression="contactKey = :contact",
        ExpressionAttributeValues={":contact": {"S": "97#5"}},
    )["Items"]
    ours = await client.devices(CustomerId(97), 5, "APP#")
    boto3_client.close()
    client.close()
    for item in (*ours, *theirs):
        assert item.pop("blob")["B"] in ("AP8=", b"\x00\xff"), "the one type that JSON has no room for"
        item["names"]["SS"].sort()
    assert ours == theirs
    assert len(ours) == 3
