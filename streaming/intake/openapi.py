"""The OpenAPI document, made from the routes and the types of their bodies. It is served at /openapi.json."""

from typing import Any, Final

import msgspec

from clientmgr.contracts.device_events import InfoPayload
from clientmgr.contracts.intake_keys import SCHEME
from streaming.intake.problems import Problem
from streaming.intake.routes import (
    DEVICE_ROUTES,
    EVENT_BODIES,
    EVENTS_PATH,
    Accepted,
    BrowserToken,
    Contact,
    DeviceToken,
    Envelope,
    PushSettings,
    Route,
)

_TYPES: Final = (InfoPayload, DeviceToken, BrowserToken, PushSettings, Contact, Envelope, Accepted, Problem)
_REFERENCE: Final = "#/components/schemas/{name}"

_REFUSALS: Final = {
    "400": "A field is wrong: `errors` names it.",
    "401": "No key, or none that counts.",
    "403": "Not with this key: another customer, application or web page.",
    "404": "There is nothing here.",
    "405": "Not with this method: `Allow` says which.",
    "408": "The request did not come in time.",
    "413": "Too much for one request.",
    "415": "Not in this format.",
    "429": "Too many events: `Retry-After` says when to come again.",
    "431": "The head of the request is too large.",
    "500": "Something went wrong.",
    "503": "The log can't be reached. Send the same again after `Retry-After`.",
}

_IDEMPOTENCY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The event's id, where the body has none; of a batch, with the event's number behind it. ASCII.",
    "schema": {"type": "string", "maxLength": 200},
}
_OCCURRED_AT: Final = {
    "name": "occurredAt",
    "in": "query",
    "description": "When it happened, in epoch milliseconds, by the device's clock. Default: now; the time of the "
    "signature where there is one.",
    "schema": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 2**53},
}
_CLIENT_ID: Final = {
    "name": "clientId",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": 512},
}


def document(most_events: int) -> dict[str, Any]:
    _, components = msgspec.json.schema_components(_TYPES, ref_template=_REFERENCE)
    schemas: dict[str, Any] = dict(components)
    schemas["Event"] = {"oneOf": [_event(event_type) for event_type in EVENT_BODIES]}
    paths: dict[str, dict[str, Any]] = {EVENTS_PATH: {"post": _sending_events(most_events)}}
    for route in DEVICE_ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _on_device(route)
    for path, summary, media_type in (
        ("/healthz", "Well or not.", "text/plain"),
        ("/openapi.json", "This document.", "application/json"),
    ):
        paths[path] = {"get": _open_to_all(summary, media_type)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Client Manager: intake",
            "version": "1",
            "description": "Devices' events by HTTP. 202 means: the event is in the log.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "server": {"type": "http", "scheme": "bearer", "bearerFormat": "cmk_<id>_<secret>"},
                "app": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": f"`{SCHEME} Key=<id>, Timestamp=<ms>, Signature=<hex>`: see docs/intake.md",
                },
            },
        },
        "security": [{"server": []}, {"app": []}],
    }


def _event(event_type: str) -> dict[str, Any]:
    bodies = EVENT_BODIES[event_type]
    payload = _one_of(bodies) if bodies else {"type": ["object", "null"]}
    return {
        "allOf": [
            _reference(Envelope),
            {
                "type": "object",
                "properties": {"eventType": {"const": event_type}, "payload": payload},
                "required": ["eventType", *(["payload"] if bodies and bodies[0] is not InfoPayload else [])],
            },
        ]
    }


def _sending_events(most_events: int) -> dict[str, Any]:
    event = {"$ref": _REFERENCE.format(name="Event")}
    return {
        "operationId": "sendEvents",
        "summary": "Send events: one, an array, or one a line. All of them are taken, or none.",
        "parameters": [_IDEMPOTENCY],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "oneOf": [event, {"type": "array", "items": event, "minItems": 1, "maxItems": most_events}]
                    }
                },
                "application/x-ndjson": {"schema": {"type": "string"}},
            },
        },
        "responses": _answers(),
    }


def _on_device(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{route.part.title().replace('-', '') or 'Device'}",
        "summary": route.summary,
        "parameters": [_CLIENT_ID, _OCCURRED_AT, _IDEMPOTENCY],
        "responses": _answers(),
    }
    if route.bodies:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _one_of(route.bodies)}},
        }
    return operation


def _open_to_all(summary: str, media_type: str) -> dict[str, Any]:
    refusals = {status: answer for status, answer in _answers().items() if status in ("405", "408", "413", "431")}
    return {
        "summary": summary,
        "security": [],
        "responses": {
            "200": {"description": "Yes.", "content": {media_type: {}}},
            "503": {"description": "Not at the moment.", "content": {"text/plain": {}}},
            **refusals,
        },
    }


def _answers() -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": _reference(Problem)}}
    return {
        "202": {
            "description": "The events are in the log.",
            "content": {"application/json": {"schema": _reference(Accepted)}},
        },
        **{status: {"description": text, "content": problem} for status, text in _REFUSALS.items()},
    }


def _one_of(types: tuple[type[Any], ...]) -> dict[str, Any]:
    return _reference(types[0]) if len(types) == 1 else {"oneOf": [_reference(one) for one in types]}


def _reference(of: type[Any]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=of.__name__)}
