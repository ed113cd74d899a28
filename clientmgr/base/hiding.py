"""Values of settings as they may be shown to anyone: secrets and the passwords in URLs are hidden."""

import json
import re
from typing import Any, Final

from pydantic import SecretStr

HIDDEN: Final = "********"
# Of Spark's settings, as Spark itself knows them.
_SECRET_NAME = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
_CONNECT_TOKEN = re.compile(r"(;token=)[^;]*", re.IGNORECASE)
_QUERY_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&]*", re.IGNORECASE)


def display_value(value: Any) -> str:
    if isinstance(value, SecretStr):
        return HIDDEN if value.get_secret_value() else ""
    if isinstance(value, dict):
        return json.dumps({name: HIDDEN if _SECRET_NAME.search(name) else item for name, item in value.items()})
    text = str(value)
    if isinstance(value, str) and "://" in value:
        return hide_password(text)
    return text


def json_value(value: Any) -> Any:
    """The same for machines: numbers, booleans and lists stay what they are."""
    if isinstance(value, dict):
        return json.loads(display_value(value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_value(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else display_value(value)


def hide_password(url: str) -> str:
    """The URL without its password, wherever in it the password stands.

    Not by urllib: libpq takes `#` and `?` in a password as they are, and whoever forgot to escape a `/` still does not
    want to read their password in an error message.
    """
    scheme, separator, rest = url.partition("://")
    if scheme == "sc":  # Spark Connect's parameters stand behind semicolons
        return _CONNECT_TOKEN.sub(rf"\1{HIDDEN}", url)
    authority, slash, path = rest.partition("/")
    before_query, mark, query = path.partition("?")
    if "@" not in authority and "@" in before_query:
        authority, slash, path = f"{authority}/{before_query}", mark, query
    userinfo, at, host = authority.rpartition("@")
    shown = f"{scheme}{separator}{_without_password(userinfo)}{at}{host}{slash}{path}"
    return _QUERY_PASSWORD.sub(rf"\1{HIDDEN}", shown)


def _without_password(userinfo: str) -> str:
    user, colon, _ = userinfo.partition(":")
    return f"{user}{colon}{HIDDEN if colon else ''}"
