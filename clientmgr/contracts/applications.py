"""What an application's configuration may say, field by field. Pure: `clientmgr.tenants.applications` keeps it."""

import re
from collections.abc import Sequence
from typing import Final

from clientmgr.base.errors import InvalidInputError
from clientmgr.contracts.decoding import is_identifier

MOST_WEB_ORIGINS: Final = 100
LONGEST_LANGUAGE: Final = 100

# A bundle id, or one with a suffix of Apple's: com.acme.app.voip
_APPLE_TOPIC = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,253}[A-Za-z0-9])?")
# As browsers send it in `Origin`: no path, no user, international names in their ASCII form.
_WEB_ORIGIN = re.compile(
    r"(https?)://((?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])"
    r"(?::([1-9][0-9]{0,4}))?"
)
_OWN_MACHINE = frozenset({"localhost", "127.0.0.1", "[::1]"})
_DEFAULT_PORTS = {"https": "443", "http": "80"}
_LARGEST_PORT = 65_535


def is_apple_topic(text: str) -> bool:
    """Whether Apple could know it: in a request, anything else makes Apple refuse the whole request."""
    return _APPLE_TOPIC.fullmatch(text) is not None


def checked_application_code(value: str, *, field: str = "applicationCode") -> str:
    if not is_identifier(value):
        raise InvalidInputError(field, "1 to 512 bytes of text", value)
    return value


def checked_apple_topic(value: str | None, *, field: str = "appleTopic") -> str | None:
    if value is not None and not is_apple_topic(value):
        raise InvalidInputError(field, "a bundle id such as com.acme.app", value)
    return value


def checked_web_origins(values: Sequence[str], *, field: str = "webOrigins") -> list[str]:
    """Spelled as browsers spell them, each once, sorted."""
    if len(values) > MOST_WEB_ORIGINS:
        raise InvalidInputError(field, f"at most {MOST_WEB_ORIGINS} origins", len(values))
    return sorted({_origin(value, field) for value in values})


def _origin(value: str, field: str) -> str:
    match = _WEB_ORIGIN.fullmatch(value.lower().removesuffix("/"))
    if match is None or len(match[2]) > 253 or int(match[3] or 1) > _LARGEST_PORT:
        raise InvalidInputError(field, "an origin such as https://www.acme.com, without a path", value)
    scheme, host, port = match.groups()
    if scheme == "http" and host not in _OWN_MACHINE:
        raise InvalidInputError(field, "https: browsers offer web push to no other (but for localhost)", value)
    return f"{scheme}://{host}" + ("" if port in (None, _DEFAULT_PORTS[scheme]) else f":{port}")


def checked_language(value: str | None, *, field: str = "defaultLanguage") -> str | None:
    """As BCP 47 spells it: `de_ch` as `de-CH`."""
    if value is None:
        return None
    # It takes a while to import, and most commands name no language.
    from langcodes import Language
    from langcodes.tag_parser import LanguageTagError

    try:
        language = Language.get(value.strip()[: LONGEST_LANGUAGE + 1])
        if len(value) <= LONGEST_LANGUAGE and language.is_valid() and language.language not in (None, "und", "mul"):
            return language.to_tag()
    except (LanguageTagError, ValueError):
        pass
    raise InvalidInputError(field, "a language tag such as de or pt-BR", value)
