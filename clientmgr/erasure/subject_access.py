"""Everything that is kept about a contact, as one JSON document: the answer to a subject access request.

It is written piece by piece, so that memory stays the same however much there is. Tokens are masked unless they are
asked for. Of a sending to many the contact gets its own entry and nobody else's.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import msgspec
from psycopg import Connection
from psycopg.rows import dict_row

from clientmgr.audit.log import AuditEntry, Detail
from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.database import Role
from clientmgr.base.errors import TransientError, UnknownTenantError
from clientmgr.base.masking import masked, masked_data
from clientmgr.base.sqlfiles import named_queries
from clientmgr.contracts.device_fields import FIELDS
from clientmgr.devices.legacy.items import plain
from clientmgr.erasure import stored_rows
from clientmgr.erasure import subject as subjects
from clientmgr.erasure.outside_postgres import legacy_devices
from clientmgr.erasure.places import DAGSTER, Stores, Watch, snapshot, unwatched
from clientmgr.erasure.recognition import contacts_in
from clientmgr.erasure.subject import Subject
from clientmgr.sending.fetch import Strategy, choose_strategy
from clientmgr.tenants.flippers import Flippers, list_settings
from clientmgr.tenants.registry import find_tenant

_TENANT = named_queries("tenant/queries/subject.sql")
_QUERIES = named_queries("erasure/queries/places.sql")
ACTION: Final = "contact.export"
_SECRET_COLUMNS: Final = frozenset(field.name for field in FIELDS if field.masked)

Write = Callable[[str], object]
Items = Iterator[Any]


def export_contact(
    stores: Stores,
    customer_id: CustomerId,
    contact_id: int,
    write: Write,
    *,
    actor: str,
    reveal: bool = False,
    watch: Watch = unwatched,
) -> int:
    """Write the document. Returns how many things are in it. The audit log says who asked, before and after."""
    with snapshot(stores.database) as connection:
        if find_tenant(connection, customer_id) is None:
            raise UnknownTenantError(f"customer {customer_id} was never activated")
        subject = subjects.contact(connection, customer_id, contact_id, stores.keys)
        _record(stores, subject, actor, "started", None, reveal=reveal)
        head = {
            "customerId": customer_id,
            "contactId": contact_id,
            "exportedAt": datetime.now(UTC).isoformat(),
            "exportedBy": actor,
            "release": f"clientmgr {version('clientmgr')}",
            "tokensIncluded": reveal,
        }
        write("{\n" + "".join(f"  {_text(name)}: {_text(value)},\n" for name, value in head.items()))
        sections = _sections(connection, stores, subject, reveal=reveal, watch=watch)
        count = 0
        for number, (name, items) in enumerate(sections):
            write((",\n" if number else "") + f"  {_text(name)}: [")
            for place, item in enumerate(items):
                write(f"{',' if place else ''}\n    {_text(item)}")
                count += 1
            write("]")
        write("\n}\n")
    _record(stores, subject, actor, "done", count, reveal=reveal)
    return count


def _sections(
    connection: Connection[Any], stores: Stores, subject: Subject, *, reveal: bool, watch: Watch
) -> Iterator[tuple[str, Items]]:
    if subject.schema_is_there:
        yield "devices", _devices(connection, subject, reveal=reveal)
        yield "links", _rows(connection, subject, "links")
        yield "merges", _rows(connection, subject, "merges")
        yield "deletions", _rows(connection, subject, "deletions")
    yield "messages", _messages(connection, subject, reveal=reveal, watch=watch)
    yield "otherRows", _other_rows(connection, subject, watch)
    yield "auditRows", _audit_rows(connection, subject)
    yield "legacyDevices", _legacy(connection, stores, subject, reveal=reveal)


def _devices(connection: Connection[Any], subject: Subject, *, reveal: bool) -> Items:
    for row in _rows(connection, subject, "full_devices"):
        yield row if reveal else {name: masked(value, secret=name in _SECRET_COLUMNS) for name, value in row.items()}


def _rows(connection: Connection[Any], subject: Subject, query: str) -> Items:
    wanted = {"contact_hash": subject.contact_hash, "contact_id": subject.contact_id}
    with connection.cursor(row_factory=dict_row) as cursor:
        yield from cursor.execute(in_schema(_TENANT[query], subject.customer_id).encode(), wanted)


def _messages(connection: Connection[Any], subject: Subject, *, reveal: bool, watch: Watch) -> Items:
    for table in stored_rows.tables(connection, subject, without=[DAGSTER]):
        if table.has_messages:
            for message in stored_rows.messages_about(connection, table, subject, watch(table.title)):
                payload = message.payload if reveal else masked_data(message.payload)
                yield {
                    "table": table.name,
                    "where": message.where,
                    "publishedAt": message.published_at,
                    "key": message.key,
                    "attributes": message.attributes,
                    "message": _own_part(_decoded(payload), subject),
                }


def _own_part(message: Any, subject: Subject) -> Any:
    """Of a message to many recipients only the contact's own entry: the others are none of its business."""
    if isinstance(message, dict) and isinstance(message.get("recipients"), list):
        own = [one for one in message["recipients"] if subject.contact_id in contacts_in(msgspec.json.encode(one))]
        return {**message, "recipients": own}
    return message


def _decoded(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return payload.decode(errors="backslashreplace")


def _other_rows(connection: Connection[Any], subject: Subject, watch: Watch) -> Items:
    for table in stored_rows.tables(connection, subject, without=[DAGSTER]):
        if table.has_customer and not table.has_messages and table.name != "audit_log":
            for _, row in stored_rows.rows_about(connection, table, subject, watch(table.title)):
                yield {"table": table.title, "row": json.loads(row)}


def _audit_rows(connection: Connection[Any], subject: Subject) -> Items:
    wanted = {"customer_id": subject.customer_id, "contact_hash": subject.audit_hash}
    with connection.cursor(row_factory=dict_row) as cursor:
        for row in cursor.execute(_QUERIES["audit_rows"], wanted):
            yield {name: value for name, value in row.items() if name not in {"key_id", "previous_hash", "hash"}}


def _legacy(connection: Connection[Any], stores: Stores, subject: Subject, *, reveal: bool) -> Items:
    """Devices that are still read from DynamoDB, where the customer's are."""
    settings = list_settings(connection, subject.customer_id)
    flippers = Flippers((one.name, one.customer_id, one.enabled) for one in settings)
    if choose_strategy(flippers, subject.customer_id, stores.settings) is Strategy.POSTGRES:
        return
    try:
        items = list(legacy_devices(stores.settings, subject))
    except Exception as error:  # boto3 raises what it likes
        raise TransientError(f"DynamoDB, where this customer's devices are, did not answer: {error}") from error
    for item in items:
        device = {name: plain(value) for name, value in item.items()}
        yield device if reveal else masked(device)


def _record(stores: Stores, subject: Subject, actor: str, outcome: str, count: int | None, *, reveal: bool) -> None:
    details: dict[str, Detail] = {"tokens": reveal}
    entry = AuditEntry(subject.customer_id, actor, ACTION, outcome, subject.contact_id, count, details)
    with stores.database.connect(Role.WRITER) as connection:
        stores.keys.audit.append(connection, [entry])


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else str(value)
