"""A provider is added as docs/how_to.md says, in a copy of the code, and its devices get messages."""

from pathlib import Path

from clientmgr.base.database import Database
from tests.house.checkout import Checkout

ASSEMBLER = '''"""Acme Push: the body of a request."""

import msgspec
from msgspec import Raw, Struct

from clientmgr.contracts.sending import Content
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.sending.assemble.interface import Delivery


class AcmeRequest(Struct, frozen=True, gc=False, rename="camel"):
    acme_address: str | None
    shown: Raw


class AcmeAssembler:
    provider = "acme"
    max_payload_bytes = 1024
    request_type = AcmeRequest

    def __init__(self, delivery: Delivery) -> None:
        self._message = delivery.message

    def payload(self, content: Content, platform: str | None) -> bytes:
        return msgspec.json.encode({"text": content.body, "campaign": self._message.campaign_id})

    def request(self, device: ContactDevice, payload: bytes, out_message_id: str) -> AcmeRequest:
        return AcmeRequest(device.push_token, Raw(payload))


ASSEMBLER = AcmeAssembler
'''

MIGRATION = """
ALTER TABLE :"schema".devices
    DROP CONSTRAINT devices_provider_check,
    DROP CONSTRAINT devices_push_token_kind_check,
    ADD CONSTRAINT devices_provider_check CHECK (provider IN ('apple', 'fcm', 'huawei', 'vapid', 'acme', 'none')),
    ADD CONSTRAINT devices_push_token_kind_check
        CHECK (push_token_kind IN ('apns', 'fcm_token', 'fcm_fid', 'hms', 'webpush', 'acme_token'));
"""


def test_an_assembler_an_entry_and_a_migration_are_all_that_a_new_provider_needs(
    database: Database, tmp_path: Path
) -> None:
    checkout = Checkout(tmp_path)
    checkout.add_file("clientmgr/sending/assemble/acme.py", ASSEMBLER)
    checkout.add_line(
        "clientmgr/contracts/providers.py",
        'Provider("acme", "Acme Push", "push", "push-acme", ("acme_token",), ("acmeAddress",)),',
        after='Provider("huawei"',
    )
    checkout.add_tenant_migration("acme", MIGRATION)

    seen = checkout.run("tests.house.provider_walk", database.url)

    shown = {"text": "Your order is here", "campaign": "9001"}
    assert seen == {
        "row": ["acme", "acme_token", "valid"],
        "topic": "sending-tx-push-acme-dg00",
        "request": {"acmeAddress": "a-token-of-acme-0123456789", "shown": shown},
        "masked": {"acmeAddress": "a-toke…6789", "shown": shown},
        "not sent": 0,
        "legacy device": "acme",
    }
    assert len(checkout.changed) == 3
