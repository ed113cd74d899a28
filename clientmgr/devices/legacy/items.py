"""Items of the legacy store's table as devices. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.devices.state import PROVIDER_OF_KIND


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
