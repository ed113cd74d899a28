"""Rows of new devices as lines of COPY: many times as quick as an upsert, where nothing is known yet. Pure.

A row goes straight to its line: a state in between would take as long as all the rest. It is the line of the state that
the row's events would make, and a test holds it to that.
"""

import functools
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Raw

from clientmgr.contracts.device_events import WebPush
from clientmgr.contracts.device_fields import INFO_FIELDS
from clientmgr.contracts.providers import PROVIDER_OF_KIND
from clientmgr.devices.contact_history import NO_CONTACT
from clientmgr.devices.imports.changes import Named
from clientmgr.devices.imports.rows import EPOCH

_BEFORE_INFO: Final = (
    "device_hash", "application_code", "client_id", "contact_id", "contact_version", "push_token", "push_token_kind",
    "push_token_hash", "push_token_status", "push_token_version", "push_token_status_version", "web_push",
    "last_seen_version", "info_versions",
)  # fmt: skip
COLUMNS: Final = (*_BEFORE_INFO, *INFO_FIELDS, "provider", "last_seen_at", "orphaned_since")
"""As the query `copy_devices` names them."""
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_NULL: Final = r"\N"
_TABS: Final = len(COLUMNS) - 1
_NO_TOKEN: Final = (None, None, None, "none", "0", "0", None)


def device_line(named: Named) -> str:
    row, token = named.row, named.row.token
    version, info = row.version, row.info
    since = row.unlinked_at or (0 if row.contact_id is not None else version)
    cells: list[Any] = [f"\\x{named.device.hex()}", row.application_code, row.client_id]
    if row.contact_id is not None:
        cells += (str(row.contact_id), str(version))
    else:
        cells += (None, str(row.unlinked_at or 0))
    if token is None or named.token is None:
        cells += _NO_TOKEN
        provider = "none"
    else:
        provider = PROVIDER_OF_KIND[token.kind]
        web_push = _plain(token.web_push) if isinstance(token.web_push, WebPush) else None
        text = None if web_push else token.push_token
        cells += (text, token.kind, f"\\x{named.token.hex()}", "valid", str(version), "0", web_push)
    cells += (str(version), _info_versions(tuple(info)).replace("?", str(version)))
    # Most are text or nothing: to call a function for each would take as long as all the rest.
    cells += [
        value if value is None or value.__class__ is str else _plain(value) for value in map(info.get, INFO_FIELDS)
    ]
    cells += (provider, _moment(version), _moment(since) if since else None)
    line = "\t".join(["" if cell is None else cell for cell in cells])
    # Nearly every row has nothing to escape but the beginnings of its hashes: it is looked through once, as a whole.
    hashes = 1 if named.token is None else 2
    if line.count("\\") == hashes and line.count("\t") == _TABS and "\n" not in line and "\r" not in line:
        line = "\t".join([_NULL if cell is None else cell for cell in cells]).replace(r"\x", r"\\x")
        return f"{line}\n"
    return "\t".join([_NULL if cell is None else cell.translate(_ESCAPED) for cell in cells]) + "\n"


def link_line(named: Named) -> str:
    row = named.row
    if named.contact is not None:
        return f"{_bytea(named.device)}\t{row.version}\t{_bytea(named.contact)}\t{row.contact_id}\n"
    if row.unlinked_at is not None:
        return f"{_bytea(named.device)}\t{row.unlinked_at}\t{_bytea(NO_CONTACT)}\t{_NULL}\n"
    return ""


def claim_line(named: Named) -> str:
    if named.token is None:
        return ""
    return f"{_bytea(named.token)}\t{_bytea(named.device)}\t{named.row.version}\n"


@functools.lru_cache(1000)
def _info_versions(names: tuple[str, ...]) -> str:
    """JSON with a mark in the place of the version, which is the same of all."""
    return "{" + ",".join([f'"{name}":?' for name in names]) + "}"


def _moment(milliseconds: int) -> str:
    return (EPOCH + timedelta(milliseconds=milliseconds)).isoformat()


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
