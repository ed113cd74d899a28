"""Sample messages for contacts that there are, for the demo and for trying things out. Pure but for the draws."""

import random
import uuid
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts.sending import Content, Options, Recipient, SendingMessage

Channel = Literal["push", "webpush", "inbox", "em"]
LIFETIME_MS: Final = 3_600_000
SAMPLE_TOPIC: Final = "com.example.app"
NOBODY: Final = 1
"""A contact without devices, so that there is something to see in the not-sent events."""

_TEXTS: Final[dict[str, tuple[str, str]]] = {
    "en": ("Your order is on its way", "Hello {{ first_name }}, it will be with you on Friday."),
    "fr": ("Votre commande est en route", "Bonjour {{ first_name }}, elle arrivera vendredi."),
    "de": ("Ihre Bestellung ist unterwegs", "Hallo {{ first_name }}, sie kommt am Freitag."),
    "hu": ("Úton van a rendelése", "Kedves {{ first_name }}, pénteken érkezik."),
    "zh-Hant": ("您的訂單已出貨", "{{ first_name }} 您好，將於星期五送達。"),
}
_CHANNELS: Final = ("push", "push", "push", "webpush", "inbox", "em")
_FILTERS: Final[tuple[Any, ...]] = (
    None,
    {"not": {"field": "platform", "op": "=", "value": "android-huawei"}},
    {"field": "osVersion", "op": ">=", "value": "14"},
)


def sample_for(
    customer_id: CustomerId, application_code: str, contact_id: int, *, now_ms: int, channel: Channel = "push"
) -> SendingMessage:
    """A message to one contact, with something to read in every language there is a sample for."""
    contents = {language: Content(title, body) for language, (title, body) in _TEXTS.items()}
    return SendingMessage(
        message_id=str(uuid.uuid4()),
        customer_id=customer_id,
        application_code=application_code,
        campaign_id="sample",
        channel=channel,
        recipients=[Recipient(contact_id, contents)],
        expires_at=now_ms + LIFETIME_MS,
        default_language="en",
        options=Options(apple_topic=SAMPLE_TOPIC),
    )


def sample_message(
    customer_id: CustomerId,
    application_code: str,
    contact_ids: Sequence[int],
    *,
    now_ms: int,
    chance: random.Random,
    recipients: int,
) -> bytes:
    """A message of the device mapper's topic, for some of the contacts."""
    chosen = chance.sample(list(contact_ids), min(recipients, len(contact_ids)))
    contents = {language: {"title": title, "body": body} for language, (title, body) in _TEXTS.items()}
    return msgspec.json.encode(
        {
            "messageId": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
            "customerId": customer_id,
            "applicationCode": application_code,
            "campaignId": str(9000 + chance.randrange(10)),
            "channel": chance.choice(_CHANNELS),
            "expiresAt": now_ms + LIFETIME_MS,
            "options": {"priority": "high", "appleTopic": SAMPLE_TOPIC},
            "filter": chance.choice(_FILTERS),
            "defaultLanguage": "en",
            "recipients": [{"contactId": contact_id, "contents": contents} for contact_id in (*chosen, NOBODY)],
        }
    )
