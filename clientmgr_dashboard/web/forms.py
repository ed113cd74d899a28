"""What a client sends, in a query, a form or as JSON, as the operations' own requests, or refused."""

import re
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from clientmgr_dashboard.access.dashboard_door import CSRF_FIELD

Wanted = TypeVar("Wanted", bound=msgspec.Struct)

MOST_FIELDS = 2000
MANY = frozenset({"ids", "offsets"})
"""Fields that may come more than once."""
VERBATIM = frozenset({"applicationCode", "clientId", "password"})
"""Fields in which leading and trailing spaces count."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", re.ASCII)
"""What a browser's field for a time sends: no time zone. Pages show UTC, so it means that."""


def from_query(request: Request, wanted: type[Wanted], **given: Any) -> Wanted:
    """A browser sends empty fields for what nobody filled in; operations get only what was filled in."""
    parameters = {
        name: text if name in VERBATIM else text.strip() for name, text in query_of(request).items() if text.strip()
    }
    parameters |= {
        name: f"{text}{'' if found[1] else ':00'}Z"
        for name, text in parameters.items()
        if (found := _MOMENT.fullmatch(text))
    }
    return msgspec.convert(_kept({**parameters, **request.path_params}, wanted) | given, wanted, strict=False)


async def from_form(request: Request, wanted: type[Wanted], **given: Any) -> Wanted:
    return msgspec.convert({**_kept(await form_fields(request), wanted), **given}, wanted, strict=False)


async def form_fields(request: Request) -> dict[str, Any]:
    """The fields of a form. The guard has read and checked it already."""
    fields: dict[str, Any] = {}
    for name, text in _pairs(await request.body()):
        if name == CSRF_FIELD or not text.strip():
            continue
        if name in MANY:
            fields.setdefault(name, []).append(text.strip())
        else:
            fields[name] = text if name in VERBATIM else text.strip()
    return fields


def query_of(request: Request) -> dict[str, str]:
    return dict(_pairs(request.scope["query_string"]))


def json_of(body: bytes) -> Any:
    try:
        return _whole(msgspec.json.decode(body))
    except RecursionError:
        raise msgspec.DecodeError("The JSON is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"Expected UTF-8 - at byte {error.start} of the JSON's text") from None


def _whole(document: Any) -> Any:
    """JSON has one kind of number: 62.0 is an integer there, and in the schema that we publish."""
    if isinstance(document, dict):
        return {name: _whole(value) for name, value in document.items()}
    if isinstance(document, list):
        return [_whole(value) for value in document]
    return int(document) if isinstance(document, float) and document.is_integer() else document


def _pairs(encoded: bytes) -> list[tuple[str, str]]:
    """Names and values. Bytes that are no UTF-8 would become a text that nobody sent."""
    try:
        # Latin-1 keeps every byte as it is.
        found = parse_qsl(
            encoded.decode("latin-1"), keep_blank_values=True, encoding="latin-1", max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise msgspec.DecodeError(f"More than {MOST_FIELDS} fields") from None
    return [(_utf8(name, "a field's name"), _utf8(value, f"`$.{name}`")) for name, value in found]


def _utf8(text: str, where: str) -> str:
    try:
        return text.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise msgspec.DecodeError(f"Expected UTF-8 - at {where}") from None


def _kept(fields: dict[str, Any], wanted: type[msgspec.Struct]) -> dict[str, Any]:
    known = _names(wanted)
    return {name: value for name, value in fields.items() if name in known}


def _names(wanted: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(wanted)}
