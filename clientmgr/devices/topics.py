"""The names of the topics that carry what happens to devices, as the contracts spell them."""

WRITER = "client-manager.writer"
REPUBLISHER = "client-manager.republisher"
WRITER_ERRORS = "client-manager.writer-errors"
PUSH_TOKEN_STATUS = "client-manager.push-token-status"  # noqa: S105  # a topic
WEB_PUSH_TOKEN_STATUS = "client-manager.web-push-token-status"  # noqa: S105  # a topic
CONTACT_DELETION = "client-manager.contact-deletion"
CONTACT_DELETION_ERRORS = "client-manager.contact-deletion-errors"
DEVICE_MAPPER_ERRORS = "sending-mg-errors"
NOT_SENT = "data-platform.not-sent"

SHARED = frozenset({NOT_SENT, DEVICE_MAPPER_ERRORS})
"""Topics that daemons in a hurry and daemons with much to publish have in common."""


def device_mapper_input(sending_type: str, delivery_group: str) -> str:
    """Personalised messages of one type of traffic (`batch` or `tx`) and one delivery group."""
    return f"sending-{sending_type}-devicemapper-{delivery_group}"


def device_mapper_subscription(sending_type: str, delivery_group: str) -> str:
    return f"{device_mapper_input(sending_type, delivery_group)}-sub"
