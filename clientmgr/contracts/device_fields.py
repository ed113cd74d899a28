"""The fields of a device, each stated once: its type, and what every part of the system does with it.

Decoding, the columns of the tenants' queries, filters, the export, DynamoDB items and Spark's columns are derived from
`FIELDS`. A new info field is an entry here and a migration in `sql/tenant/`.
"""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from clientmgr.base.masking import name_secrets


class Kind(enum.Enum):
    """A field's type: in PostgreSQL, in Spark, and in an event, where it has one."""

    TEXT = ("text", "string", str)
    BOOLEAN = ("boolean", "boolean", bool)
    INTEGER = ("bigint", "bigint", Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)])
    JSON = ("jsonb", "string", dict[str, Any])
    """An object. Readers get it as text: few of them look into it."""
    TIME = ("timestamp with time zone", "timestamp", None)
    BYTES = ("bytea", "string", None)

    def __init__(self, sql_type: str, spark_type: str, event_type: Any) -> None:
        self.sql_type = sql_type
        self.spark_type = spark_type
        self.event_type = event_type


class Facet(enum.Enum):
    """Who sets a field."""

    KEY = enum.auto()
    """Nobody: it says which device this is."""
    INFO = enum.auto()
    """`client.registered` and `client.updated`. Each field has a version of its own."""
    TOKEN = enum.auto()
    """Events and verdicts about the push token."""
    CONTACT = enum.auto()
    """Events that link a contact or unlink it."""
    BOOKKEEPING = enum.auto()
    """The writer, for itself."""


class Compares(enum.Enum):
    """How a filter compares a field."""

    TEXT = enum.auto()
    VERSION = enum.auto()
    """By the numbers between the dots: 4.10 is greater than 4.9."""
    NUMBER = enum.auto()
    """Times too: in a filter they are epoch milliseconds."""
    BOOLEAN = enum.auto()
    MEMBERS = enum.auto()
    """Not the object but its members, named with a dot: `attributes.tier`."""


@dataclass(frozen=True, slots=True)
class DeviceField:
    """A column of `devices`."""

    name: str
    kind: Kind
    facet: Facet
    compares: Compares | None = None
    """None: no filter may name it."""
    masked: bool = False
    """Whether it would let somebody else push to the device. Whoever asks to see it in full is audited."""
    exported: bool = True
    """Whether `clientmgr devices` lists and exports it."""
    exported_members: tuple[str, ...] = ()
    """Of JSON: paths of members that the export has as columns of their own, in place of the whole."""
    legacy: str | None = None
    """The attribute of an item in DynamoDB that holds the same."""
    in_spark: bool = True
    """Whether Spark's jobs may read it."""

    def __post_init__(self) -> None:
        if self.facet is Facet.INFO and self.kind.event_type is None:
            raise ValueError(f"{self.name}: no event can carry {self.kind.sql_type}")

    @property
    def json_name(self) -> str:
        """Its name in events and filters."""
        return camel(self.name)

    @property
    def is_for_senders(self) -> bool:
        """Whether a `ContactDevice` has it: whatever events report, filters ask for, or a request needs."""
        return self.facet is Facet.INFO or self.compares is not None or self.masked


def camel(name: str) -> str:
    """`push_settings` as JSON spells it: `pushSettings`."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def info(name: str, kind: Kind, compares: Compares | None) -> DeviceField:
    """An info field. It is exported, in Spark's columns, and called the same in DynamoDB as in events."""
    return DeviceField(name, kind, Facet.INFO, compares, legacy=camel(name))


def _time(name: str) -> DeviceField:
    return DeviceField(name, Kind.TIME, Facet.BOOKKEEPING, Compares.NUMBER, legacy=camel(name))


FIELDS: Final = (
    # In the order of an export's columns.
    DeviceField("application_code", Kind.TEXT, Facet.KEY),
    DeviceField("client_id", Kind.TEXT, Facet.KEY, Compares.TEXT),
    info("hardware_id", Kind.TEXT, Compares.TEXT),
    DeviceField("contact_id", Kind.INTEGER, Facet.CONTACT, Compares.NUMBER),
    info("platform", Kind.TEXT, Compares.TEXT),
    DeviceField("provider", Kind.TEXT, Facet.TOKEN, Compares.TEXT),
    info("application_version", Kind.TEXT, Compares.VERSION),
    info("os_version", Kind.TEXT, Compares.VERSION),
    info("device_model", Kind.TEXT, Compares.TEXT),
    info("sdk_version", Kind.TEXT, Compares.VERSION),
    info("language", Kind.TEXT, Compares.TEXT),
    info("timezone", Kind.TEXT, Compares.TEXT),
    info("push_enabled", Kind.BOOLEAN, Compares.BOOLEAN),
    info("push_settings", Kind.JSON, Compares.MEMBERS),
    DeviceField("push_token_kind", Kind.TEXT, Facet.TOKEN, Compares.TEXT, legacy="kind"),
    DeviceField("push_token_status", Kind.TEXT, Facet.TOKEN, Compares.TEXT, legacy="pushTokenStatus"),
    # Spark gets no tokens: its jobs compare digests.
    DeviceField("push_token", Kind.TEXT, Facet.TOKEN, masked=True, legacy="pushToken", in_spark=False),
    DeviceField(
        "web_push",
        Kind.JSON,
        Facet.TOKEN,
        masked=True,
        exported_members=("endpoint", "keys,p256dh", "keys,auth"),
        legacy="webPush",
        in_spark=False,
    ),
    # Also of what is deleted: clientmgr/base/keyed_hashes.py.
    DeviceField("device_hash", Kind.BYTES, Facet.BOOKKEEPING, exported=False, in_spark=False),
    DeviceField("push_token_hash", Kind.BYTES, Facet.BOOKKEEPING, exported=False),
    info("attributes", Kind.JSON, Compares.MEMBERS),
    DeviceField("orphaned_since", Kind.TIME, Facet.BOOKKEEPING),
    _time("last_seen_at"),
    _time("created_at"),
    _time("updated_at"),
    DeviceField("last_seen_version", Kind.INTEGER, Facet.BOOKKEEPING, exported=False),
    DeviceField("info_versions", Kind.JSON, Facet.BOOKKEEPING, exported=False, in_spark=False),
    DeviceField("contact_version", Kind.INTEGER, Facet.BOOKKEEPING, exported=False, in_spark=False),
    DeviceField("push_token_version", Kind.INTEGER, Facet.BOOKKEEPING, exported=False, in_spark=False),
    DeviceField("push_token_status_version", Kind.INTEGER, Facet.BOOKKEEPING, exported=False, in_spark=False),
)

INFO: Final = tuple(field for field in FIELDS if field.facet is Facet.INFO)
INFO_FIELDS: Final = tuple(field.name for field in INFO)
"""Their names."""
JSON_INFO_FIELDS: Final = tuple(field.name for field in INFO if field.kind is Kind.JSON)
SENDERS_FIELDS: Final = tuple(field for field in FIELDS if field.is_for_senders)
LEGACY_FIELDS: Final = tuple(field for field in FIELDS if field.legacy and field.facet in (Facet.INFO, Facet.TOKEN))
"""What DynamoDB has of a device that both stores must agree on. (When each last saw it, they may differ about.)"""

name_secrets(field.json_name for field in FIELDS if field.masked and field.kind is Kind.TEXT)

S = TypeVar("S", bound=Struct)


def with_fields(
    fields: Iterable[DeviceField], make: Callable[[DeviceField], tuple[str, Any, Any]]
) -> Callable[[type[S]], type[S]]:
    """Completes a Struct that declares only the fields that code names: with all others, made as `make` says.

    (name, type, default) is what `make` returns. The class is built once, when its module is imported, and is as quick
    as a written one.
    """

    def complete(declared: type[S]) -> type[S]:
        missing = [make(field) for field in fields if field.name not in declared.__struct_fields__]
        config = declared.__struct_config__
        return msgspec.defstruct(  # type: ignore[return-value]  # a subclass, as `bases` says
            declared.__name__,
            missing,
            bases=(declared,),
            module=declared.__module__,
            namespace={"__doc__": declared.__doc__},
            frozen=config.frozen,
            gc=config.gc,
        )

    return complete
