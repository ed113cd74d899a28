"""Items of the legacy store's table as devices. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from clientmgr.contracts.device_fields import SENDERS_FIELDS, Kind
from clientmgr.contracts.providers import PROVIDER_OF_KIND
from clientmgr.devices.contact_devices import ContactDevice


def device_of(contact_id: int, key_prefix: str, item: Mapping[str, Mapping[str, Any]]) -> ContactDevice:
    """An item of the table. The store is not ours: what is not of the type that we know counts as absent."""
    fields: dict[str, Any] = {}
    for attribute, value in item.items():
        if (known := _READERS.get(attribute)) is not None:
            name, read = known
            fields[name] = read(plain(value))
    kind = fields.get("push_token_kind") or ("webpush" if fields.get("web_push") is not None else None)
    if kind not in PROVIDER_OF_KIND or fields.get("web_push" if kind == "webpush" else "push_token") is None:
        kind = None
    fields["push_token_kind"] = kind
    fields["push_token_status"] = "none" if kind is None else fields.get("push_token_status") or "valid"
    return ContactDevice(
        contact_id=contact_id,
        client_id=str(plain(item["deviceKey"])).removeprefix(key_prefix),
        provider="none" if kind is None else PROVIDER_OF_KIND[kind],
        **fields,
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


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _json_object(value: Any) -> str | None:
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


_READER_OF_KIND: Final = {
    Kind.TEXT: _text,
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _integer,
    Kind.TIME: _integer,
    Kind.JSON: _json_object,
}
_READERS: Final = {
    field.legacy: (field.name, _READER_OF_KIND[field.kind]) for field in SENDERS_FIELDS if field.legacy is not None
}
"""By the name of an attribute: the field that it holds, and how the value is taken."""
