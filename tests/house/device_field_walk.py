"""Follows the info field `carrier` through the system: from an event to everything that has to do with devices."""

import asyncio
import sys
from typing import Any

import msgspec

from clientmgr.base.customer_ids import quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.cli.device_output import as_object
from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.device_events import InfoPayload, decode_event
from clientmgr.devices.legacy.items import device_of
from clientmgr.devices.lookup import DeviceLookup
from clientmgr.devices.repository import DeviceRepository
from clientmgr.devices.traces import DeviceTraces
from clientmgr.local.standins.legacy_devices import legacy_items
from clientmgr.sending.filtering import compile_filter
from clientmgr.tenant_metrics.sync import fields_of_item
from clientmgr_dagster.spark import device_columns, dynamodb_source
from tests.house.walking import APPLICATION, AT, CONTACT, CUSTOMER, HASHES, activated, arrive, event, tell


async def main(database: Database) -> dict[str, Any]:
    await arrive(
        database,
        event("registered", "phone", carrier="Telekom", language="hu"),
        event("contactLinked", "phone", contactId=CONTACT),
        event("registered", "nobodys", carrier="Vodafone"),
    )
    # The writer reads the row and writes it again, with what it does not change.
    await arrive(database, event("updated", "phone", AT + 1, language="fr"))
    repository = DeviceRepository(HASHES)
    async with await database.connect_async(Role.READER) as connection:
        found = await repository.find_by_contact_keys(connection, CUSTOMER, APPLICATION, [CONTACT])
        reported = await repository.find_reported(connection, CUSTOMER, APPLICATION, ["nobodys"])
    (device,) = found[CONTACT]
    wanted = compile_filter({"field": "carrier", "op": "=", "value": "Telekom"})
    unwanted = compile_filter({"field": "carrier", "op": "=", "value": "Vodafone"})
    assert wanted is not None
    assert unwanted is not None
    with database.connect(Role.READER) as connection:
        lookup = DeviceLookup(connection, CUSTOMER)
        columns, portions = lookup.export(reveal=False)
        exported = [row[columns.index("carrier")] for portion in portions for row in portion]
        (item,) = legacy_items(connection, CUSTOMER)
        selected = device_columns.select_list(["carrier"], CUSTOMER)
        read_by_spark = connection.execute(
            f"SELECT {selected} FROM {quoted_schema(CUSTOMER)}.devices ORDER BY client_id"
        ).fetchall()
        (known,) = DeviceTraces(connection, CUSTOMER, HASHES).everything("phone")
    return {
        "event schema": "carrier" in msgspec.json.schema(InfoPayload)["$defs"]["InfoPayload"]["properties"],
        "refused": _refusal(event("registered", "phone", carrier=1)),
        "sender": [device.language, getattr(device, "carrier", None)],
        "filter": [wanted.matches(device), unwanted.matches(device)],
        "reported": reported["nobodys"].fields["carrier"],
        "export": sorted(exported),
        "shown": as_object(CUSTOMER, known, reveal=False)["info"]["carrier"]["value"],
        "spark": [device_columns.COLUMN_TYPES["carrier"], [value for (value,) in read_by_spark]],
        "legacy item": item["carrier"],
        "legacy device": getattr(device_of(CONTACT, "", item), "carrier", None),
        "legacy scan": "carrier" in dynamodb_source._COMPARED,
        "compared with the legacy store": msgspec.json.decode(fields_of_item(item) or "{}")["carrier"],
    }


def _refusal(message: bytes) -> str:
    try:
        decode_event(message)
    except InvalidMessageError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    tell(asyncio.run(main(activated(*sys.argv[1:]))))
