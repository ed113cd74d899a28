"""The fields that a message's filter may name, by how they compare: a part of the device mapper's page."""

from typing import Final

from clientmgr.contracts.device_fields import FIELDS, Compares
from tools.docs.markdown import code, table

SHOWN: Final = {
    Compares.TEXT: "text",
    Compares.VERSION: "versions",
    Compares.NUMBER: "numbers; times are epoch milliseconds",
    Compares.BOOLEAN: "true or false",
    Compares.MEMBERS: "whatever the member is",
}


def blocks() -> dict[str, str]:
    return {"filter fields": table(["compared as", "fields"], [[SHOWN[how], code(*_names(how))] for how in Compares])}


def _names(how: Compares) -> list[str]:
    member = ".NAME" if how is Compares.MEMBERS else ""
    return [f"{field.json_name}{member}" for field in FIELDS if field.compares is how]
