"""The OpenAPI document, made from the operations: their paths, and the types of their requests and answers."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.operations.interface import Operation
from clientmgr_dashboard.problems import PROBLEM_JSON, Problem

REFERENCE = "#/components/schemas/{name}"
_IN_PATH = re.compile(r"\{(\w+)\}")


def openapi_document(operations: Sequence[Operation], prefix: str, session: type[msgspec.Struct]) -> dict[str, Any]:
    types = [Problem, session]
    for operation in operations:
        types += [operation.request, operation.answer]
    references, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    schema_of = dict(zip(map(_key, types), references, strict=True))
    paths: dict[str, Any] = {
        f"{prefix}/session": {
            "get": {
                "operationId": "session",
                "summary": "Who you are here, and the token for your POSTs.",
                "responses": _responses(schema_of[_key(session)], schema_of[_key(Problem)], ()),
            }
        }
    }
    for operation in operations:
        described = _describe(operation, schema_of, components)
        paths.setdefault(f"{prefix}{operation.path}", {})[operation.method.lower()] = described
    in_query = {_key(operation.request) for operation in operations if operation.method == "GET"}
    in_body = {_key(operation.request) for operation in operations if operation.method == "POST"}
    # These are described as parameters already.
    unused = {schema_of[key]["$ref"].rpartition("/")[2] for key in in_query - in_body}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Client Manager dashboard",
            "version": "1",
            "description": "What the dashboard shows, as JSON. Tables have `page` and `perPage`; what grows is read "
            "newest first with `limit`, and `before` takes the answer's `next`. A POST needs the session's token in "
            "X-CSRF-Token (see /session), unless the request itself carries name and password (HTTP Basic).",
        },
        "security": [{"session": []}, {"password": []}],
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in components.items() if name not in unused},
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "clientmgr_session"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _describe(operation: Operation, schema_of: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    statuses = ["400", "403", "404", "409", "413", "415"] if operation.method == "POST" else ["400", "404", "409"]
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": _responses(schema_of[_key(operation.answer)], schema_of[_key(Problem)], statuses),
    }
    if operation.needs is Role.OPERATOR:
        described["description"] = "Needs the role operator."
    if operation.method == "POST":
        body = {"application/json": {"schema": schema_of[_key(operation.request)]}}
        return described | {"requestBody": {"required": True, "content": body}}
    request = components[schema_of[_key(operation.request)]["$ref"].rpartition("/")[2]]
    in_path = set(_IN_PATH.findall(operation.path))
    described["parameters"] = [
        {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in in_path or name in request["required"],
            "schema": _of_text(schema),
        }
        for name, schema in request["properties"].items()
    ]
    return described


def _responses(answer: Any, problem: Any, statuses: Sequence[str]) -> dict[str, Any]:
    failed = {PROBLEM_JSON: {"schema": problem}}
    return {
        "200": {"description": "Done.", "content": {"application/json": {"schema": answer}}},
        **{status: {"description": "Not done.", "content": failed} for status in (*statuses, "401", "429", "503")},
    }


def _of_text(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is absent is null; there is no other way to write null in a URL."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1:
        return schema
    described = {name: value for name, value in schema.items() if name not in {"anyOf", "default"}}
    return {**choices[0], **described}


def _key(of_type: Any) -> str:
    return str(of_type)
