"""Our own client of DynamoDB's Query, for one kind of query: a contact's devices in an application.

boto3 needs 2 ms of CPU for a query and a thread for each. It validates, resolves, signs and parses what can't differ
here. Errors are boto3's own, so that `clientmgr.base.errors` knows them. Behind a proxy boto3 is still what asks.
"""

import asyncio
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from clientmgr.base.customer_ids import CustomerId
from clientmgr.devices.legacy.connections import Connections
from clientmgr.devices.legacy.dynamodb import DynamoDbAccess, Endpoint
from clientmgr.devices.legacy.http_answers import Answer, ForeignAnswerError, GarbledAnswerError
from clientmgr.devices.legacy.signing import Keys, Signer

OPERATION = "Query"
KEYS_ARE_FRESH_S = 60.0
"""How long keys that can expire are used before botocore is asked again. It renews them minutes ahead."""

Item = dict[str, dict[str, Any]]


_NO_KEY = msgspec.Raw(b"null")


class Page(msgspec.Struct, rename="pascal"):
    """An answer, of which we need this much."""

    items: list[Item]
    last_evaluated_key: msgspec.Raw = _NO_KEY


class _Refusal(msgspec.Struct):
    kind: str = msgspec.field(name="__type", default="")
    message: str = ""
    other_message: str = msgspec.field(name="Message", default="")


_PAGES = msgspec.json.Decoder(Page)
_REFUSALS = msgspec.json.Decoder(_Refusal)


class QueryClient:
    """The first query finds out where DynamoDB is and with which keys to sign."""

    def __init__(self, access: DynamoDbAccess) -> None:
        self._access = access
        self._opening = asyncio.Lock()
        self._endpoint: Endpoint | None = None
        self._connections: Connections | None = None
        self._client: Any = None
        self._threads: ThreadPoolExecutor | None = None
        self._signer: Signer | None = None
        self._keys_are_fresh_until = 0.0
        condition = "contactKey = :contact AND begins_with(deviceKey, :application)"
        self._beginning = b'{"TableName":%b,"KeyConditionExpression":%b,"ExpressionAttributeValues":{":contact":' % (
            msgspec.json.encode(access.table),
            msgspec.json.encode(condition),
        )

    async def devices(self, customer_id: CustomerId, contact_id: int, key_prefix: str) -> list[Item]:
        """All items of a contact whose `deviceKey` begins so."""
        contact = b'{"S":"%d#%d"}' % (customer_id, contact_id)
        query = b'%b%b,":application":{"S":%b}}' % (self._beginning, contact, msgspec.json.encode(key_prefix))
        page = await self._page(query + b"}")
        items = page.items
        while (last := bytes(page.last_evaluated_key)) != b"null":
            page = await self._page(b'%b,"ExclusiveStartKey":%b}' % (query, last))
            items += page.items
        return items

    async def _page(self, body: bytes) -> Page:
        signer = self._signer
        if signer is None or time.monotonic() > self._keys_are_fresh_until:
            signer = await self._prepare()
        if self._connections is None:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._page_by_boto3, body)
        answer = await self._connections.ask(signer.head(body, time.time()) + body)
        return _page_in(answer)

    async def _prepare(self) -> Signer:
        """Off the event loop: files are read, and keys may have to be fetched."""
        async with self._opening:
            if self._signer is None or time.monotonic() > self._keys_are_fresh_until:
                if self._endpoint is None:
                    self._endpoint = await asyncio.to_thread(self._access.resolve)
                    self._open(self._endpoint)
                endpoint = self._endpoint
                keys = Keys(*(await asyncio.to_thread(endpoint.credentials.get_frozen_credentials))[:3])
                if self._signer is None or self._signer.keys != keys:
                    self._signer = Signer(keys, endpoint.region, endpoint.host_header, endpoint.path, OPERATION)
                self._keys_are_fresh_until = time.monotonic() + KEYS_ARE_FRESH_S
            return self._signer

    def _open(self, endpoint: Endpoint) -> None:
        if endpoint.is_behind_proxy:
            self._client = self._access.client()
            self._threads = ThreadPoolExecutor(self._access.connections, thread_name_prefix="dynamodb")
        else:
            most, timeout_s = self._access.connections, self._access.timeout_s
            self._connections = Connections(endpoint.address, most=most, timeout_s=timeout_s)

    def _page_by_boto3(self, body: bytes) -> Page:
        found = self._client.query(**msgspec.json.decode(body))
        return Page(found["Items"], msgspec.Raw(msgspec.json.encode(found.get("LastEvaluatedKey"))))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for one in (self._connections, self._client):
            if one is not None:
                one.close()


def _page_in(answer: Answer) -> Page:
    checksum = answer.header(b"x-amz-crc32")
    if checksum is not None and checksum != b"%d" % zlib.crc32(answer.body):
        raise GarbledAnswerError("DynamoDB's answer does not match its checksum")
    if answer.status != 200:
        raise _refused(answer)
    try:
        return _PAGES.decode(answer.body)
    except msgspec.DecodeError as error:
        raise ForeignAnswerError(f"the answer is no page of items: {error}") from None


def _refused(answer: Answer) -> Exception:
    """As boto3 raises it. Without a code (a proxy answered), the HTTP status takes its place."""
    from botocore.exceptions import ClientError

    try:
        refusal = _REFUSALS.decode(answer.body)
    except msgspec.DecodeError:
        refusal = _Refusal()
    code = refusal.kind.rpartition("#")[2] or str(answer.status)
    request_id = (answer.header(b"x-amzn-requestid") or b"").decode(errors="replace")
    message = refusal.message or refusal.other_message
    metadata = {"HTTPStatusCode": answer.status, "RequestId": request_id}
    error: Exception = ClientError(
        {"Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}, OPERATION
    )
    return error
