"""What is left of a message once the sweep has erased it (`clientmgr.erasure`), and how a reader tells.

Its place in the log stays, so that no offset is missing. No handler ever gets it: it counts as done.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

ERASED_ATTRIBUTE: Final = "clientmgr-erased"
"""Its value is when. Nobody may publish a message that has it."""

_DATA_PREFIX: Final = b'{"erased":true'


def erased_data(customer_id: int | None) -> bytes:
    return msgspec.json.encode({"erased": True} | ({} if customer_id is None else {"customerId": customer_id}))


def erased_attributes(at: datetime) -> dict[str, str]:
    return {ERASED_ATTRIBUTE: at.astimezone(UTC).isoformat(timespec="seconds")}


def is_erased(attributes: Mapping[str, str], data: bytes) -> bool:
    """Whether to pass the message. Google lets anybody set any attribute, so the data has to say it too."""
    return ERASED_ATTRIBUTE in attributes and data.startswith(_DATA_PREFIX)
