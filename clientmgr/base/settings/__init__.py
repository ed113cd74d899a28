"""Every setting, once: its default, its environment name (the field's, in capitals) and a line of help.

The modules beside this one declare them, a class a section. Values come from the environment, then from `.env` in the
working directory, then from the defaults there.
"""

import functools
import json
import os
import re
from collections.abc import Callable
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableSettingError

from clientmgr.base.errors import SettingsError
from clientmgr.base.hiding import display_value
from clientmgr.base.settings.batch import BatchWork, Dagster, Spark
from clientmgr.base.settings.dashboard import Dashboard
from clientmgr.base.settings.intake import HttpIntake
from clientmgr.base.settings.kinds import postgres_url, redis_url
from clientmgr.base.settings.live import LiveBroadcast
from clientmgr.base.settings.mapper import DeviceMapper
from clientmgr.base.settings.messages import Messages
from clientmgr.base.settings.processes import Metrics, Processes
from clientmgr.base.settings.pubsub import PubSub, PubSubGateway
from clientmgr.base.settings.stores import EmbeddedServers, OthersStores, Stores
from clientmgr.base.settings.tenants import Erasure, TenantsAndAudit

SECTIONS: tuple[type, ...] = (
    Stores,
    EmbeddedServers,
    TenantsAndAudit,
    Erasure,
    Dagster,
    Spark,
    OthersStores,
    BatchWork,
    Processes,
    Messages,
    DeviceMapper,
    PubSub,
    PubSubGateway,
    Metrics,
    LiveBroadcast,
    HttpIntake,
    Dashboard,
)
"""In the order in which they are shown. A section's docstring is its title.

They are plain classes: pydantic makes fields of their annotations once, in `Settings`. As models they would cost the
start of each process some 40 ms.
"""


class Settings(
    Dashboard,
    HttpIntake,
    LiveBroadcast,
    Metrics,
    PubSubGateway,
    PubSub,
    DeviceMapper,
    Messages,
    Processes,
    BatchWork,
    OthersStores,
    Spark,
    Dagster,
    Erasure,
    TenantsAndAudit,
    EmbeddedServers,
    Stores,
    BaseSettings,
):
    """What an operator can set. Construct it with `load_settings()`, which turns a wrong value into a clear error."""

    # The bases the other way round: pydantic lists the fields of the last one first.
    model_config = SettingsConfigDict(
        env_file=".env", env_file_encoding="utf-8", extra="ignore", frozen=True, validate_default=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """As usual, without those in which no setting stands: to ask one for each setting takes milliseconds."""
        named = [
            source
            for source in (env_settings, dotenv_settings)
            if not isinstance(source, EnvSettingsSource) or not cls.model_fields.keys().isdisjoint(source.env_vars)
        ]
        return init_settings, *named

    @property
    def has_legacy_store(self) -> bool:
        """Whether there is a DynamoDB to read at all. Everything that would ask it goes by this."""
        if self.legacy_store == "auto":
            return bool(self.dynamodb_endpoint or aws_region())
        return self.legacy_store == "dynamodb"

    @property
    def mapper_reads_legacy_store(self) -> bool:
        """Whether the device mapper may read it, for customers whose flippers say so."""
        return self.has_legacy_store and self.client_fetcher_fallback_enabled

    def effective(self, shown: Callable[[Any], Any] = display_value) -> list[tuple[str, Any, str]]:
        """(environment name, value with secrets hidden, help) of each setting, in the order they are declared."""
        rows = []
        for name, field in type(self).model_fields.items():
            rows.append((name.upper(), shown(self._decided(name)), field.description or ""))
        return rows

    def environment(self) -> dict[str, str]:
        """These settings as environment variables, secrets included: what a child process of ours is started with."""
        values = {}
        for name in type(self).model_fields:
            values[name.upper()] = _as_environment_value(self._decided(name))
        return values

    def _decided(self, name: str) -> Any:
        """A setting's value. Of one that goes by the environment, what it comes to: a child may not see all of that."""
        if name == "legacy_store":
            return "dynamodb" if self.has_legacy_store else "none"
        return getattr(self, name)


def aws_region() -> str:
    """The region that the environment names. boto3 knows only the second name, AWS's other libraries the first too."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""


def _as_environment_value(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return json.dumps(value) if isinstance(value, dict) else str(value)


def unset_in_environment(name: str) -> str:
    """What an environment says where a setting is not to have a value: its default."""
    return _as_environment_value(Settings.model_fields[name.lower()].default)


def load_settings(**overrides: Any) -> Settings:
    """Read the settings; a wrong value raises `SettingsError` with its name and what was expected."""
    try:
        return Settings(**overrides)
    except UnreadableSettingError as error:
        # Of what is no JSON pydantic says no more than the field's name.
        named = re.search(r'field "(\w+)"', str(error))
        raise SettingsError(f"{named[1].upper() if named else error}: expected JSON, got none") from None
    except ValidationError as error:
        problems = []
        for detail in error.errors(include_url=False):
            name = ".".join(str(part) for part in detail["loc"]).upper()
            expected = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            given = "" if _is_secret(name, detail["input"]) else f", got {display_value(str(detail['input']))!r}"
            problems.append(f"{name}: expected {expected}{given}")
        raise SettingsError("; ".join(problems)) from None


@functools.cache
def secret_setting_names() -> frozenset[str]:
    """Environment names of the settings whose values are never shown."""
    return frozenset(name.upper() for name, field in Settings.model_fields.items() if field.annotation is SecretStr)


@functools.cache
def sensitive_setting_names() -> tuple[str, ...]:
    """Environment names of the settings with which something is opened: secrets, and URLs that hold a password."""
    opening = {"spark_conf"} | {
        name
        for name, field in Settings.model_fields.items()
        if any(getattr(one, "func", None) in (postgres_url, redis_url) for one in field.metadata)
    }
    return tuple(
        name.upper() for name in Settings.model_fields if name in opening or name.upper() in secret_setting_names()
    )


def _is_secret(name: str, value: object) -> bool:
    """Whether showing `value` could show a secret: what was meant as a URL may hold a password in any place."""
    return name in secret_setting_names() or (name.endswith("_URL") and "://" not in str(value))
