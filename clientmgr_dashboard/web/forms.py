"""What a browser sends, from a query or a form, as the operations' own requests."""

from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from clientmgr_dashboard.access.dashboard_door import CSRF_FIELD

Wanted = TypeVar("Wanted", bound=msgspec.Struct)

MANY = frozenset({"ids", "offsets"})
"""Fields that may come more than once."""
VERBATIM = frozenset({"applicationCode", "clientId", "password"})
"""Fields in which leading and trailing spaces count."""


def from_query(request: Request, wanted: type[Wanted], **given: Any) -> Wanted:
    """A browser sends empty fields for what nobody filled in; operations get only what was filled in."""
    parameters = {
        name: text if name in VERBATIM else text.strip() for name, text in request.query_params.items() if text.strip()
    }
    return msgspec.convert(_kept({**parameters, **request.path_params}, wanted) | given, wanted, strict=False)


async def from_form(request: Request, wanted: type[Wanted], **given: Any) -> Wanted:
    return msgspec.convert({**_kept(await form_fields(request), wanted), **given}, wanted, strict=False)


async def form_fields(request: Request) -> dict[str, Any]:
    """The fields of a form. The guard has read and checked it already."""
    fields: dict[str, Any] = {}
    for name, text in parse_qsl((await request.body()).decode("ascii", "replace"), max_num_fields=2000):
        if name == CSRF_FIELD or not text.strip():
            continue
        if name in MANY:
            fields.setdefault(name, []).append(text.strip())
        else:
            fields[name] = text if name in VERBATIM else text.strip()
    return fields


def _kept(fields: dict[str, Any], wanted: type[msgspec.Struct]) -> dict[str, Any]:
    known = _names(wanted)
    return {name: value for name, value in fields.items() if name in known}


def _names(wanted: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(wanted)}
