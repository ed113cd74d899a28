"""What the assemblers have in common: what they are given and what they give. One is made for each message."""

from typing import Protocol

from msgspec import Raw, Struct

from clientmgr.contracts.sending import Content, SendingMessage
from clientmgr.devices.contact_devices import ContactDevice

# Neither can be told "for ever": FCM keeps a message for four weeks at most.
LONGEST_TTL_S = 28 * 86_400


class Delivery(Struct, frozen=True, gc=False):
    """A message, and the moment at which it is mapped."""

    message: SendingMessage
    now_ms: int

    @property
    def is_expired(self) -> bool:
        expires_at = self.message.expires_at
        return expires_at is not None and expires_at <= self.now_ms

    def ttl_s(self, longest_s: int = LONGEST_TTL_S) -> int:
        """Seconds that are left to deliver it."""
        expires_at = self.message.expires_at
        if expires_at is None:
            return longest_s
        return max(0, min(longest_s, (expires_at - self.now_ms) // 1000))


class Assembler(Protocol):
    """Writes one message for devices of one provider."""

    @property
    def provider(self) -> str: ...

    @property
    def max_payload_bytes(self) -> int: ...

    def payload(self, content: Content, platform: str | None) -> bytes:
        """What counts towards the provider's limit: all that is not the device's address, as JSON."""
        ...

    def request(self, device: ContactDevice, payload: bytes, out_message_id: str) -> Raw | Struct:
        """The request for one device."""
        ...
