"""The providers that deliver messages, each stated once: what its tokens, topics and secrets are called.

How a message becomes a provider's request is in `clientmgr/sending/assemble/`, a module for each. A new provider is an
entry here, its module there, and a migration in `sql/tenant/`, whose constraints list providers and kinds of tokens.
"""

from dataclasses import dataclass
from typing import Final, Literal

from clientmgr.base.masking import name_secrets

Channel = Literal["push", "webpush", "inbox", "em"]
"""What a message is for: applications, browsers, or what applications show when they are opened."""


@dataclass(frozen=True, slots=True)
class Provider:
    """Who delivers to a kind of device, or keeps messages for contacts."""

    name: str
    """As `devices.provider` and outgoing messages have it."""
    title: str
    """For people."""
    channel: Channel
    """The messages that it is for."""
    topic: str
    """Its part of the topic's name: sending-<type>-<topic>-<delivery group>."""
    token_kinds: tuple[str, ...] = ()
    """Which push tokens it takes. None: it delivers to contacts, and needs no device."""
    address_members: tuple[str, ...] = ()
    """What its requests call a device's address. It is a secret: whoever knows it can push to the device."""


PROVIDERS: Final = (
    Provider("apple", "Apple's push notification service", "push", "push-apple", ("apns",), ("deviceToken",)),
    Provider("fcm", "Firebase Cloud Messaging", "push", "push-fcm", ("fcm_token", "fcm_fid"), ("token", "fid")),
    Provider("huawei", "Huawei Push Kit", "push", "push-huawei", ("hms",), ("token",)),
    Provider("vapid", "Web Push", "webpush", "webpush-vapid", ("webpush",), ("endpoint", "p256dh", "auth")),
    Provider("inbox", "the inbox", "inbox", "inbox"),
    Provider("em", "embedded messages", "em", "em"),
)

TOKEN_KINDS: Final = tuple(kind for provider in PROVIDERS for kind in provider.token_kinds)
PROVIDER_OF_KIND: Final = {kind: provider.name for provider in PROVIDERS for kind in provider.token_kinds}

name_secrets(member for provider in PROVIDERS for member in provider.address_members)
