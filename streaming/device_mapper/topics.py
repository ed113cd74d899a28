"""The names of the device mapper's topics, as the contracts spell them: per type of traffic and delivery group."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from clientmgr.devices import topics
from clientmgr.errors import InvalidInputError

SendingType = Literal["batch", "tx"]

ERRORS: Final = topics.DEVICE_MAPPER_ERRORS
NOT_SENT: Final = topics.NOT_SENT

_DELIVERY_GROUP = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_OF_PROVIDER: Final = {
    "apple": "push-apple",
    "fcm": "push-fcm",
    "huawei": "push-huawei",
    "vapid": "webpush-vapid",
    "inbox": "inbox",
    "em": "em",
}


@dataclass(frozen=True)
class Topics:
    """What a mapper of one type and one delivery group reads and writes."""

    sending_type: SendingType
    delivery_group: str

    def __post_init__(self) -> None:
        if _DELIVERY_GROUP.fullmatch(self.delivery_group) is None:
            raise InvalidInputError("--dg", "a delivery group like dg00", self.delivery_group)

    @property
    def input(self) -> str:
        return topics.device_mapper_input(self.sending_type, self.delivery_group)

    @property
    def subscription(self) -> str:
        return topics.device_mapper_subscription(self.sending_type, self.delivery_group)

    @property
    def outputs(self) -> dict[str, str]:
        """By provider."""
        return {
            provider: f"sending-{self.sending_type}-{name}-{self.delivery_group}"
            for provider, name in _OF_PROVIDER.items()
        }
