"""The names of all topics and subscriptions, as the contracts spell them.

A subscription carries the name of its topic, unless a function here says otherwise.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

from clientmgr.base.errors import InvalidInputError
from clientmgr.contracts.providers import PROVIDERS

ACTIVATE_CUSTOMER: Final = "client-manager.activate-customer"
ACCOUNT_DELETION: Final = "client-manager.account-deletion"

WRITER: Final = "client-manager.writer"
REPUBLISHER: Final = "client-manager.republisher"
WRITER_ERRORS: Final = "client-manager.writer-errors"
PUSH_TOKEN_STATUS: Final = "client-manager.push-token-status"  # noqa: S105  # a topic
WEB_PUSH_TOKEN_STATUS: Final = "client-manager.web-push-token-status"  # noqa: S105  # a topic
CONTACT_DELETION: Final = "client-manager.contact-deletion"
CONTACT_DELETION_ERRORS: Final = "client-manager.contact-deletion-errors"
DEVICE_MAPPER_ERRORS: Final = "sending-mg-errors"
NOT_SENT: Final = "data-platform.not-sent"

SHARED: Final = frozenset({NOT_SENT, DEVICE_MAPPER_ERRORS})
"""Topics that daemons in a hurry and daemons with much to publish have in common."""

PROVIDER_TOPIC: Final = f"^sending-(batch|tx)-({'|'.join(sorted({one.topic for one in PROVIDERS}))})-"
"""A regular expression of the topics that mappers send to, one for each provider: see `DeviceMapperTopics.outputs`."""


def device_mapper_input(sending_type: str, delivery_group: str) -> str:
    """Personalised messages of one type of traffic (`batch` or `tx`) and one delivery group."""
    return f"sending-{sending_type}-devicemapper-{delivery_group}"


def device_mapper_subscription(sending_type: str, delivery_group: str) -> str:
    return f"{device_mapper_input(sending_type, delivery_group)}-sub"


SendingType = Literal["batch", "tx"]

_DELIVERY_GROUP = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


@dataclass(frozen=True)
class DeviceMapperTopics:
    """What a mapper of one type and one delivery group reads and writes."""

    sending_type: SendingType
    delivery_group: str

    def __post_init__(self) -> None:
        if _DELIVERY_GROUP.fullmatch(self.delivery_group) is None:
            raise InvalidInputError("--dg", "a delivery group like dg00", self.delivery_group)

    @property
    def input(self) -> str:
        return device_mapper_input(self.sending_type, self.delivery_group)

    @property
    def subscription(self) -> str:
        return device_mapper_subscription(self.sending_type, self.delivery_group)

    @property
    def outputs(self) -> dict[str, str]:
        """By provider."""
        return {
            provider.name: f"sending-{self.sending_type}-{provider.topic}-{self.delivery_group}"
            for provider in PROVIDERS
        }
