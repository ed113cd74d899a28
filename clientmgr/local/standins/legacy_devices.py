"""Fills a DynamoDB stand-in with a tenant's devices as the older system would have kept them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts.device_fields import LEGACY_FIELDS, Kind
from clientmgr.devices.lookup import DeviceLookup

Item = dict[str, dict[str, Any]]
"""In DynamoDB's own JSON: {"platform": {"S": "ios"}, …}."""


def legacy_items(connection: Connection[Any], customer_id: CustomerId) -> Iterator[Item]:
    """The tenant's devices that have a contact; the older system knows no others."""
    columns, portions = DeviceLookup(connection, customer_id).export(reveal=True)
    for portion in portions:
        for row in portion:
            device = dict(zip(columns, row, strict=True))
            if device["contact_id"] is not None:
                yield legacy_item(customer_id, device)


def legacy_item(customer_id: CustomerId, device: Mapping[str, Any]) -> Item:
    """A device as `devices export` has it, as an item of the table."""
    values: dict[str, Any] = {}
    for field in LEGACY_FIELDS:
        if not field.exported_members:
            text = device[field.name]
            values[str(field.legacy)] = json.loads(text) if field.kind is Kind.JSON and text is not None else text
    if device["web_push_endpoint"] is not None:
        keys = {"p256dh": device["web_push_p256dh"], "auth": device["web_push_auth"]}
        values["webPush"] = {"endpoint": device["web_push_endpoint"], "keys": keys}
    values["contactKey"] = f"{customer_id}#{device['contact_id']}"
    values["deviceKey"] = f"{device['application_code']}#{device['client_id']}"
    return {name: dynamodb_value(value) for name, value in values.items() if value is not None}


def dynamodb_value(value: Any) -> dict[str, Any]:
    """A value as DynamoDB writes it; `clientmgr.devices.legacy.items.plain` is the way back."""
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | float():
            return {"N": str(value)}
        case str():
            return {"S": value}
        case dict():
            return {"M": {name: dynamodb_value(item) for name, item in value.items()}}
        case list():
            return {"L": [dynamodb_value(item) for item in value]}
    raise TypeError(f"DynamoDB has no {type(value).__name__}")
