"""What a proof says, and the signature that tells later whether it is as it was written. Pure.

The signature is an HMAC with a key made from the audit log's, for this purpose alone.
"""

import hmac
import json
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from clientmgr.audit.log import AuditLogger
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings
from clientmgr.erasure.places import Place

_PURPOSE: Final = b"clientmgr:proof"

Outcome = Literal["nothing left", "left", "within the erasure period", "not proven"]


class DeletionAuditRow(Struct, frozen=True, rename="camel"):
    """A row of the audit log that is about the contact or the account."""

    seq: int
    recorded_at: datetime
    actor: str
    action: str
    outcome: str
    rows_affected: int | None
    details: dict[str, Any]


class ChainCheck(Struct, frozen=True, rename="camel"):
    """Whether the customer's chain of the audit log is as it was written."""

    is_intact: bool
    findings: list[str]


class DeletionNote(Struct, frozen=True, rename="camel"):
    deleted_at: datetime
    recorded_at: datetime


class Report(Struct, frozen=True, rename="camel"):
    """What a proof says. `signature` is over all the rest."""

    report: Literal["proof: contact", "proof: account"]
    verdict: str
    outcome: Outcome
    customer_id: int
    contact_id: int | None
    contact_hash: str | None
    """What stands for the contact in the audit log."""
    made_at: datetime
    made_by: str
    release: str
    deletions: list[DeletionNote]
    due_until: datetime | None
    """When the erasure period of the newest deletion ends."""
    searched_texts: list[str]
    """Keyed hashes of the texts that were looked for: the report is not to hold what it looks for."""
    places: list[Place]
    audit_rows: list[DeletionAuditRow]
    audit_chain: ChainCheck
    notes: list[str]
    key_id: str
    signature: str = ""

    @property
    def is_clean(self) -> bool:
        return self.outcome == "nothing left"


def signed(report: Report, settings: Settings) -> Report:
    unsigned = msgspec.structs.replace(report, signature="")
    return msgspec.structs.replace(unsigned, signature=keyed(settings, _canonical(msgspec.to_builtins(unsigned))).hex())


def as_text(report: Report) -> str:
    """The report as it is written to a file. Its signature holds for these very bytes."""
    return _written(msgspec.to_builtins(report))


def check(text: str, settings: Settings) -> Report:
    """The report in the text, if it is one of ours and unchanged; raises where it is not."""
    key_id = AuditLogger.from_settings(settings).key_id
    try:
        document = json.loads(text)
        report = msgspec.convert(document, Report)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise InvalidInputError("FILE", "a report of `prove`", str(error)) from None
    if report.key_id != key_id:
        raise InvalidInputError("FILE", f"a report signed with the key {key_id}", report.key_id)
    signature = keyed(settings, _canonical({**document, "signature": ""})).hex()
    if not hmac.compare_digest(signature, report.signature) or text != _written(document):
        raise InvalidInputError(
            "FILE", "a report as it was written", "one that was changed: the signature does not fit"
        )
    return report


def _canonical(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _written(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def keyed(settings: Settings, data: bytes) -> bytes:
    """The HMAC of data, with a key that is for reports alone."""
    key = hmac.digest(settings.audit_hash_key.get_secret_value().encode(), _PURPOSE, "sha256")
    return hmac.digest(key, data, "sha256")
