"""The queries on a tenant's device tables, with the columns written in that follow from the registry of device fields.

A file in `sql/tenant/queries/` says `:info_columns` where the info fields belong, so that a new field changes no query,
and `:silent_since` where it asks for orphans, so that all who ask mean the same.
Each file is read and completed once; for each tenant only the schema is put in (`in_schema`).
"""

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from clientmgr.base.errors import MigrationError
from clientmgr.base.sqlfiles import named_queries
from clientmgr.contracts.device_fields import FIELDS, INFO_FIELDS, DeviceField, Facet, Kind
from clientmgr.devices.contact_devices import ADDRESS_FIELDS, ContactDevice
from clientmgr.devices.rows import STATE_COLUMNS

_OF_NAME: Final = {field.name: field for field in FIELDS}
_PLACEHOLDER: Final = re.compile(r"(?<!:):([a-z_]+)")

TOKEN_FIELDS: Final = tuple(field.name for field in FIELDS if field.facet is Facet.TOKEN)
REPORTED_COLUMNS: Final = (*TOKEN_FIELDS, *INFO_FIELDS)
"""What `find_reported` ends with."""

OTHER_WAYS: Final = ("seqscan", "material", "hashjoin", "mergejoin")
"""All that we ask of a tenant is found by key, with an index. But a table that was empty when a statement was planned
looks as cheap from end to end, once for each key, and that plan is kept while the table grows: it may not be chosen."""

SILENT_SINCE: Final = (
    "CASE WHEN d.contact_id IS NULL THEN greatest(d.last_seen_at, nullif(d.orphaned_since, d.created_at)) END"
)
"""Since when a device without a contact has given no sign of life, by its own clock; null: it has a contact.

`last_seen_at` is the newest event that is not a deletion. Verdicts on its token are a provider's, and no sign of life.
Up to release 0.1.0 the `orphaned_since` of a device that never had a contact was the moment of its ingestion, equal to
`created_at`. That is no sign of life either: such rows follow the rule without being rewritten.
"""


def export_columns(field: DeviceField) -> Mapping[str, str]:
    """The columns that a field has in an export, each with what is selected for it."""
    if not field.exported_members:
        return {field.name: _selected(field)}
    paths = {f"{field.name}_{path.rpartition(',')[2]}": path for path in field.exported_members}
    return {name: f"d.{field.name} #>> '{{{path}}}' AS {name}" for name, path in paths.items()}


def _selected(field: DeviceField) -> str:
    """JSON as text: whoever asks has a quicker decoder than the driver's, or does not look into it at all."""
    return f"d.{field.name}::text" if field.kind is Kind.JSON else f"d.{field.name}"


def _for_senders(field: DeviceField) -> str:
    # date_part, not extract: extract's numeric is several times as slow.
    is_time = field.kind is Kind.TIME
    return f"(date_part('epoch', d.{field.name}) * 1000)::bigint" if is_time else _selected(field)


def _exported() -> Iterator[str]:
    for field in FIELDS:
        if field.exported:
            yield from export_columns(field).values()


def _columns(names: Iterable[str]) -> str:
    return ", ".join(_selected(_OF_NAME[name]) for name in names)


_COLUMNS: Final = {
    "info_columns": ", ".join(INFO_FIELDS),
    "info_assignments": ", ".join(f"{name} = excluded.{name}" for name in INFO_FIELDS),
    "info_pairs": ", ".join(f"'{name}', d.{name}" for name in INFO_FIELDS),
    "state_columns": _columns(STATE_COLUMNS),
    "reported_columns": _columns(REPORTED_COLUMNS),
    "contact_device_columns": ", ".join(_for_senders(_OF_NAME[name]) for name in ContactDevice.__struct_fields__),
    "export_columns": ", ".join(_exported()),
    "silent_since": SILENT_SINCE,
}


def contact_devices_query(fields: Collection[str] | None) -> str:
    """`find_by_contact_keys` with the addresses and these other fields of a `ContactDevice`. None: with all.

    In the order of its fields, so that a row becomes a device as it is: null stands for what comes between them.
    """
    if fields is None:
        return device_queries("contact_devices")["find_by_contact_keys"]
    names = ContactDevice.__struct_fields__
    wanted = {*ADDRESS_FIELDS, *fields}
    last = max(names.index(name) for name in wanted)
    columns = [_for_senders(_OF_NAME[name]) if name in wanted else "NULL" for name in names[: last + 1]]
    sql = named_queries("tenant/queries/contact_devices.sql")["find_by_contact_keys"]
    return sql.replace(":contact_device_columns", ", ".join(columns))


@functools.cache
def device_queries(file: str) -> Mapping[str, str]:
    """The queries of `sql/tenant/queries/<file>.sql` by name; what is left to put in is the schema."""
    return {name: _completed(sql) for name, sql in named_queries(f"tenant/queries/{file}.sql").items()}


def _completed(sql: str) -> str:
    unknown = set(_PLACEHOLDER.findall(sql)) - _COLUMNS.keys()
    if unknown:
        raise MigrationError(f"sql/tenant/queries: no columns are known as :{', :'.join(sorted(unknown))}")
    return _PLACEHOLDER.sub(lambda found: _COLUMNS[found[1]], sql)
