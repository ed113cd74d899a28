"""Who published a message, as whoever let it in knows: the actor of what the message asks for. No I/O.

A message may claim anything about who asks. What counts is the attribute that our own code sets: the gateway for its
callers, the command line and the dashboard for their users. Nobody else can publish a message that has it.
"""

from collections.abc import Mapping
from typing import Final

from clientmgr.contracts import topics

PUBLISHER_ATTRIBUTE: Final = "clientmgr-publisher"

UNAUTHENTICATED: Final = "unauthenticated"
"""The actor where nobody asked the publisher who it is, as on a gateway without identities."""
UNKNOWN_TO_US: Final = "pubsub:unknown publisher"
"""The actor where Google's own access rules let the publisher in and do not say whom."""

STAMPED: Final = frozenset({topics.ACTIVATE_CUSTOMER, topics.ACCOUNT_DELETION, topics.CONTACT_DELETION})
"""Topics whose messages are acted on in their publisher's name. Others are not stamped: it would cost their writers."""


def actor_of(attributes: Mapping[str, str]) -> str:
    return attributes.get(PUBLISHER_ATTRIBUTE) or UNAUTHENTICATED


def stamp(topic: str, publisher: str) -> dict[str, str]:
    """The attributes that a message on `topic` gets from whoever lets it in."""
    return {PUBLISHER_ATTRIBUTE: publisher} if topic in STAMPED else {}


def without_stamp(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in attributes.items() if name != PUBLISHER_ATTRIBUTE}
