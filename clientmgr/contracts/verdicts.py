"""The providers' verdicts on push tokens: what their messages carry, decoded and checked. No I/O."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts import topics
from clientmgr.contracts.decoding import (
    Identifier,
    Millis,
    check_identifiers,
    check_occurred_at,
    checked_customer_id,
    decode,
)
from clientmgr.contracts.push_tokens import token_digest

LongText = Annotated[str, Meta(min_length=1, max_length=8192)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a provider said of a device's token."""

    application_code: str
    client_id: str
    token_digest: bytes
    status: str
    occurred_at: int


class _Status(Struct, frozen=True, rename="camel"):
    event_id: Identifier
    customer_id: int
    application_code: Identifier
    client_id: Identifier
    status: Literal["valid", "invalid"]
    occurred_at: Millis
    reason: str | None = None


class PushStatus(_Status, frozen=True, rename="camel", kw_only=True):
    push_token: LongText


class WebPushStatus(_Status, frozen=True, rename="camel", kw_only=True):
    endpoint: LongText


_PUSH = msgspec.json.Decoder(PushStatus)
_WEB = msgspec.json.Decoder(WebPushStatus)


def decode_verdict(topic: str, data: bytes) -> tuple[CustomerId, Verdict]:
    """The verdict in a message of one of the two topics, or `InvalidMessageError` that names the field."""
    status: PushStatus | WebPushStatus = decode(_PUSH if topic == topics.PUSH_TOKEN_STATUS else _WEB, data)
    check_occurred_at(status.occurred_at)
    check_identifiers(status.application_code, status.client_id)
    digest = token_digest(status.push_token if isinstance(status, PushStatus) else status.endpoint)
    verdict = Verdict(status.application_code, status.client_id, digest, status.status, status.occurred_at)
    return checked_customer_id(status.customer_id), verdict
