"""Kinds of values that several settings have: what is accepted, and what is said of what is not."""

import re
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, SecretStr

from clientmgr.base.exposure import is_loopback
from clientmgr.base.strong_keys import HOW_TO_MAKE_ONE, is_sample_password, weakness

Port = Annotated[int, Field(ge=0, le=65535)]


def postgres_url(value: str) -> str:
    if value and not value.startswith(("postgresql://", "postgres://")):
        raise ValueError("a URL like postgresql://user:password@host:5432/database")
    return _without_sample_password(value)


def redis_url(value: str) -> str:
    if value and not value.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("a URL like redis://host:6379/0")
    return _without_sample_password(value)


def _without_sample_password(url: str) -> str:
    if is_sample_password(unquote(urlsplit(url).password or "")):
        raise ValueError("a password of its own in the URL, not the one of our example")
    return url


def _strong_key(value: SecretStr) -> SecretStr:
    if value.get_secret_value() and (problem := weakness(value.get_secret_value())):
        raise ValueError(f"a key that nobody can guess, but it is {problem}; {HOW_TO_MAKE_ONE}")
    return value


def _web_url(value: SecretStr) -> SecretStr:
    if value.get_secret_value() and not value.get_secret_value().startswith(("https://", "http://")):
        raise ValueError("a URL like https://host/path")
    return value


def _origin_url(value: str) -> str:
    if value and not re.fullmatch(r"https?://[^/?#@\s;,']+/?", value):
        raise ValueError("a URL like https://host or http://host:8788, without a path")
    return value.rstrip("/")


def _tiles_url(value: str) -> str:
    """Its host becomes a part of the page's security policy, and all of it an attribute of the page."""
    if value and not (
        re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+/[A-Za-z0-9._~/?=&%@{}-]*", value)
        and all(value.count(part) == 1 for part in ("{z}", "{x}", "{y}"))
        and set(re.findall(r"\{[^}]*\}?|\}", value)) <= {"{z}", "{x}", "{y}", "{r}"}
    ):
        raise ValueError("a URL like https://host/{z}/{x}/{y}.png, with {r} where @2x may stand")
    return value


def _anchor_places(value: SecretStr) -> SecretStr:
    for place in value.get_secret_value().split(","):
        if place.strip() and not re.match(r"(file:/|rediss?://.|s3://.|https?://.)", place.strip()):
            raise ValueError(
                "places with commas between, each like file:/path, redis://host, s3://bucket, https://host"
            )
    return value


def _import_folder(value: str) -> str:
    if value and not ("{customer}" in value and re.match(r"(s3://[^/?#]+/|file:///)", value)):
        raise ValueError("a folder for each customer, like s3://bucket/devices/{customer} or file:///srv/{customer}")
    return value


def _connect_url(value: str) -> str:
    if not value:
        return value
    host, _, parameters = value.removeprefix("sc://").partition("/")
    if not value.startswith("sc://") or not host:
        raise ValueError("a URL like sc://host:15002/;use_ssl=true")
    named = dict(one.partition("=")[::2] for one in parameters.split(";"))
    # pyspark turns TLS on for a token too.
    is_encrypted = named.get("use_ssl", "").lower() == "true" or bool(named.get("token"))
    if not is_encrypted and not is_loopback(re.sub(r":\d+$", "", host)):
        raise ValueError(
            "TLS to a host that is not this machine, because logins are sent to it: sc://host:port/;use_ssl=true, "
            "or with ;token=…"
        )
    return value


PostgresUrl = Annotated[str, AfterValidator(postgres_url)]
OriginUrl = Annotated[str, AfterValidator(_origin_url)]
TilesUrl = Annotated[str, AfterValidator(_tiles_url)]
ConnectUrl = Annotated[str, AfterValidator(_connect_url)]
RedisUrl = Annotated[str, AfterValidator(redis_url)]
StrongKey = Annotated[SecretStr, AfterValidator(_strong_key)]
SecretWebUrl = Annotated[SecretStr, AfterValidator(_web_url)]
ImportFolder = Annotated[str, AfterValidator(_import_folder)]
AnchorPlaces = Annotated[SecretStr, AfterValidator(_anchor_places)]
