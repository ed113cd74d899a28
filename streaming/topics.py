"""The names of our topics, as the contracts spell them. Subscriptions carry their topic's name."""

from clientmgr.devices.topics import (
    CONTACT_DELETION,
    CONTACT_DELETION_ERRORS,
    PUSH_TOKEN_STATUS,
    REPUBLISHER,
    WEB_PUSH_TOKEN_STATUS,
    WRITER,
    WRITER_ERRORS,
)

__all__ = [
    "CONTACT_DELETION",
    "CONTACT_DELETION_ERRORS",
    "PUSH_TOKEN_STATUS",
    "REPUBLISHER",
    "WEB_PUSH_TOKEN_STATUS",
    "WRITER",
    "WRITER_ERRORS",
]
