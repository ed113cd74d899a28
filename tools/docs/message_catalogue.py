"""docs/message_catalogue.md and docs/message_schemas.json: every topic, who publishes and reads it, what it carries."""

import json
from typing import Any, Final

from clientmgr.contracts import daemons
from streaming.live.records import Body, Payload
from tools.docs import messages
from tools.docs.daemon_facts import publishes_to, reads_from
from tools.docs.markdown import anchor, code, fenced, table
from tools.docs.message_schemas import rows, schema_of
from tools.docs.messages import Carried

INTRODUCTION: Final = """\
# Message catalogue

<!-- Written by `python -m tools.docs` from the code and tools/docs/messages.py: change the text there. -->

Every topic, who publishes to it and who reads it, and what it carries. Messages are JSON in UTF-8; names are camelCase,
times epoch milliseconds, a customer id a positive integer. A field that nobody knows is ignored; one that is missing or
wrong is a permanent error that names it. The same as JSON Schemas: [message_schemas.json](message_schemas.json). How
messages travel and what happens when one fails: [messages.md](messages.md).
"""

STREAM: Final = """\
## Positions

No topics of the broker: live positions come by the Redis stream `telemetry:teltonika` and leave by WebSocket
([live.md](live.md)). An entry of the stream has the fields `device_id`, `ts` (ISO 8601), `codec` and `payload`:
"""


def render() -> str:
    publishers, readers = _publishers(), _readers()
    overview = [
        (
            f"[`{carried.topic}`](#{anchor(carried.topic)})",
            ", ".join(publishers.get(carried.topic, [])) or "–",
            ", ".join(readers.get(carried.topic, [])) or "–",
        )
        for carried in messages.ALL
    ]
    parts = [INTRODUCTION, table(("topic", "published by", "read by"), overview), ""]
    for carried in messages.ALL:
        parts += [_section(carried, publishers.get(carried.topic, []), readers.get(carried.topic, [])), ""]
    columns = ("field", "type", "required")
    parts += [STREAM, table(columns, rows(*schema_of(Payload))), ""]
    parts += ["A subscriber gets, besides `type` and `topic`:", "", table(columns, rows(*schema_of(Body)))]
    return "\n".join(parts).strip() + "\n"


def render_schemas() -> str:
    """All schemas, by topic, as one JSON document."""
    found = {carried.topic: _schemas(carried) for carried in messages.ALL if carried.struct is not None}
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def _schemas(carried: Carried) -> dict[str, Any]:
    assert carried.struct is not None  # noqa: S101  # its caller looked
    schema, components = schema_of(carried.struct, **carried.replaced)
    for event_types, payload in carried.payloads.items():
        inner, more = schema_of(payload)
        components |= {**more, payload.__name__: {**inner, "description": f"payload of {event_types}"}}
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return {**whole, "$defs": components} if components else whole


def _section(carried: Carried, publishers: list[str], readers: list[str]) -> str:
    columns = ("field", "type", "required")
    parts = [
        f"## `{carried.topic}`",
        carried.tells,
        f"Published by: {', '.join(publishers) or '–'}. Read by: {', '.join(readers) or '–'}.",
    ]
    if carried.struct is not None:
        parts.append(table(columns, rows(*schema_of(carried.struct, **carried.replaced))))
    for event_types, payload in carried.payloads.items():
        parts += [f"`payload` of {event_types}:", table(columns, rows(*schema_of(payload)))]
    if carried.attributes:
        attributes = [(code(name), meaning) for name, meaning in carried.attributes.items()]
        parts += ["Attributes, besides those that it came with:", table(("attribute", "value"), attributes)]
    if carried.example is not None:
        parts.append(fenced(json.dumps(carried.example, indent=2, ensure_ascii=False), "json"))
    return "\n\n".join(parts)


def _publishers() -> dict[str, list[str]]:
    found = {one.topic: [one.published_from_outside] for one in messages.ALL if one.published_from_outside}
    for entry in daemons.ALL:
        for topic in publishes_to(entry):
            found.setdefault(topic, []).append(_page(entry.name))
    for topic, asset in _from_dagster()[0].items():
        found.setdefault(topic, []).append(asset)
    return found


def _readers() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in daemons.ALL:
        for topic in reads_from(entry):
            found.setdefault(topic, []).append(_page(entry.name))
    for topic, sensor in _from_dagster()[1].items():
        found.setdefault(topic, []).append(sensor)
    for one in messages.ALL:
        if one.read_outside:
            found.setdefault(one.topic, []).append(one.read_outside)
    return found


def _from_dagster() -> tuple[dict[str, str], dict[str, str]]:
    """What Dagster publishes and reads, by topic."""
    from clientmgr.contracts.topics import ACCOUNT_DELETION, ACTIVATE_CUSTOMER, CONTACT_DELETION
    from clientmgr_dagster.defs.contact_deletion.assets import MESSAGES
    from clientmgr_dagster.defs.contact_deletion.reconciliation import NAME
    from clientmgr_dagster.defs.tenancy.message_sensors import account_deletion_sensor, customer_activation_sensor

    published = {CONTACT_DELETION: f"Dagster's assets `{MESSAGES}` and `{NAME}`"}
    read = {
        ACTIVATE_CUSTOMER: f"Dagster's sensor `{customer_activation_sensor.name}`",
        ACCOUNT_DELETION: f"Dagster's sensor `{account_deletion_sensor.name}`",
    }
    return published, read


def _page(daemon: str) -> str:
    return f"[{daemon}](daemons/{daemon}.md)"
