"""New devices as lines of COPY: many times as quick as an upsert, for rows that nothing is known of yet. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Raw

from clientmgr.contracts.device_fields import INFO_FIELDS
from clientmgr.devices.contact_history import Link
from clientmgr.devices.fold import Claim
from clientmgr.devices.imports.rows import EPOCH
from clientmgr.devices.rows import row_of
from clientmgr.devices.state import DeviceKey, DeviceState

_BEFORE_INFO: Final = (
    "device_hash", "application_code", "client_id", "contact_id", "contact_version", "push_token", "push_token_kind",
    "push_token_hash", "push_token_status", "push_token_version", "push_token_status_version", "web_push",
    "last_seen_version", "info_versions",
)  # fmt: skip
_COLUMNS: Final = (*_BEFORE_INFO, *INFO_FIELDS, "provider", "last_seen_at", "orphaned_since")
"""As the query `copy_devices` names them."""
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_NULL: Final = r"\N"
_TABS: Final = len(_COLUMNS) - 1


def device_line(device: bytes, key: DeviceKey, state: DeviceState) -> str:
    row = row_of(device, key, state)
    row["last_seen_at"] = EPOCH + timedelta(milliseconds=state.last_seen)
    # Most are text or nothing: to call a function for each would take as long as all the rest.
    cells = [value if value is None or value.__class__ is str else _plain(value) for value in map(row.get, _COLUMNS)]
    line = "\t".join(["" if cell is None else cell for cell in cells])
    # Nearly every row has nothing to escape but the beginnings of its hashes: it is looked through once, as a whole.
    hashes = 2 if row["push_token_hash"] else 1
    if line.count("\\") == hashes and line.count("\t") == _TABS and "\n" not in line and "\r" not in line:
        line = "\t".join([_NULL if cell is None else cell for cell in cells]).replace(r"\x", r"\\x")
        return f"{line}\n"
    return "\t".join([_NULL if cell is None else cell.translate(_ESCAPED) for cell in cells]) + "\n"


def link_lines(device: bytes, links: Iterable[Link]) -> str:
    return "".join(
        [f"{_bytea(device)}\t{link.version}\t{_bytea(link.contact)}\t{link.contact_id or _NULL}\n" for link in links]
    )


def claim_line(token: bytes, claim: Claim) -> str:
    return f"{_bytea(token)}\t{_bytea(claim.device)}\t{claim.version}\n"


def _bytea(value: bytes) -> str:
    return rf"\\x{value.hex()}"


def _plain(value: Any) -> str:
    """A cell that is still to be escaped."""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return (bytes(value) if isinstance(value, Raw) else msgspec.json.encode(value)).decode()
