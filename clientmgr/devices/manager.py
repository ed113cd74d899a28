"""`DeviceManager`: the devices of a contact from the legacy store, DynamoDB. Read only.

boto3 knows no asyncio: queries run in threads, as many at once as DYNAMODB_CONCURRENCY says. What AWS asks to be tried
again is tried a few times here; beyond that the error is the caller's, and `clientmgr.errors` calls it transient.
"""

import asyncio
import functools
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from clientmgr.devices.contact_devices import ContactDevice, DevicesByContact
from clientmgr.devices.dynamodb import DynamoDbAccess
from clientmgr.devices.events import is_identifier
from clientmgr.devices.state import PROVIDER_OF_KIND
from clientmgr.settings import Settings
from clientmgr.tenants.names import CustomerId

ATTEMPTS = 3


class DeviceManager:
    """The client is made by the first query: whoever never asks needs neither credentials nor a region."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(settings.dynamodb_concurrency, thread_name_prefix="dynamodb")

    async def find_by_contact_key(
        self, customer_id: CustomerId, application_code: str, contact_id: int
    ) -> list[ContactDevice]:
        """The devices of one contact in an application, in the order of their client ids."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._query, customer_id, application_code, contact_id)

    async def find_by_contact_keys(
        self, customer_id: CustomerId, application_code: str, contact_ids: Collection[int]
    ) -> DevicesByContact:
        """The same for many contacts, a query each. The first that fails ends it: what still waits is not asked."""
        asked = [
            asyncio.ensure_future(self.find_by_contact_key(customer_id, application_code, contact_id))
            for contact_id in contact_ids
        ]
        try:
            found = await asyncio.gather(*asked)
        finally:
            for one in asked:
                one.cancel()
        return {contact_id: devices for contact_id, devices in zip(contact_ids, found, strict=True) if devices}

    def close(self) -> None:
        """Lets go of the threads. What is under way ends with its time limit."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if "_client" in self.__dict__:
            self._client.close()

    @functools.cached_property
    def _client(self) -> Any:
        concurrency = self._settings.dynamodb_concurrency
        return DynamoDbAccess.from_settings(self._settings, attempts=ATTEMPTS, connections=concurrency).client()

    def _query(self, customer_id: CustomerId, application_code: str, contact_id: int) -> list[ContactDevice]:
        prefix = f"{application_code}#"
        request: dict[str, Any] = {
            "TableName": self._settings.dynamodb_devices_table,
            "KeyConditionExpression": "contactKey = :contact AND begins_with(deviceKey, :application)",
            "ExpressionAttributeValues": {
                ":contact": {"S": f"{customer_id}#{contact_id}"},
                ":application": {"S": prefix},
            },
        }
        devices: list[ContactDevice] = []
        while True:
            page = self._client.query(**request)
            found = [device_of(contact_id, prefix, item) for item in page["Items"]]
            # One that could never have registered with us: no topic or table of ours can hold its id.
            devices += [device for device in found if is_identifier(device.client_id)]
            if "LastEvaluatedKey" not in page:
                return devices
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def device_of(contact_id: int, key_prefix: str, item: Mapping[str, Mapping[str, Any]]) -> ContactDevice:
    """An item of the table. The store is not ours: what is not of the type that we know counts as absent."""
    values = {name: plain(value) for name, value in item.items()}
    kind = _text(values.get("kind")) or ("webpush" if isinstance(values.get("webPush"), dict) else None)
    if kind not in PROVIDER_OF_KIND:
        kind = None
    token = _text(values.get("pushToken"))
    web_push = _json_object(values.get("webPush"))
    holds_token = kind is not None and (web_push if kind == "webpush" else token) is not None
    status = _text(values.get("pushTokenStatus"))
    enabled = values.get("pushEnabled")
    return ContactDevice(
        contact_id=contact_id,
        client_id=str(values["deviceKey"]).removeprefix(key_prefix),
        platform=_text(values.get("platform")),
        provider=PROVIDER_OF_KIND[kind] if kind is not None and holds_token else "none",
        push_enabled=enabled if isinstance(enabled, bool) else None,
        push_token=token,
        push_token_kind=kind if holds_token else None,
        push_token_status=(status or "valid") if holds_token else "none",
        web_push=web_push,
        language=_text(values.get("language")),
        application_version=_text(values.get("applicationVersion")),
        os_version=_text(values.get("osVersion")),
        sdk_version=_text(values.get("sdkVersion")),
        device_model=_text(values.get("deviceModel")),
        hardware_id=_text(values.get("hardwareId")),
        timezone=_text(values.get("timezone")),
        last_seen_at=_millis(values.get("lastSeenAt")),
        created_at=_millis(values.get("createdAt")),
        updated_at=_millis(values.get("updatedAt")),
        push_settings=_json_object(values.get("pushSettings")),
        attributes=_json_object(values.get("attributes")),
    )


def plain(value: Mapping[str, Any]) -> Any:
    """A value in DynamoDB's JSON (`{"S": "x"}`) as Python has it; None for the types that no device has."""
    ((kind, content),) = value.items()
    match kind:
        case "S" | "BOOL":
            return content
        case "N":
            return int(content) if content.lstrip("-").isdigit() else float(content)
        case "M":
            return {name: plain(item) for name, item in content.items()}
        case "L":
            return [plain(item) for item in content]
        case _:
            return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _millis(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _json_object(value: Any) -> str | None:
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else None
