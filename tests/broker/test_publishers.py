"""Who published a message is what our own code says, and never what the message or its sender does."""

import pytest
from google.pubsub_v1 import types

from clientmgr.base.errors import InvalidInputError
from clientmgr.broker.interface import Message
from clientmgr.broker.pubsub.wire import from_proto, to_proto
from clientmgr.cli.message_input import parse_attributes
from clientmgr.contracts.lifecycle import decode_deletion
from clientmgr.contracts.publishers import PUBLISHER_ATTRIBUTE, UNAUTHENTICATED, actor_of, stamp
from clientmgr.contracts.topics import ACCOUNT_DELETION, WRITER

FORGED = {PUBLISHER_ATTRIBUTE: "cli:root", "source": "crm"}


def test_a_stamp_that_comes_over_pubsub_does_not_count() -> None:
    message = types.PubsubMessage.pb()(data=b"{}", attributes=FORGED, ordering_key="7")
    received = types.ReceivedMessage.pb()(ack_id="a", message=message)
    delivered = from_proto(ACCOUNT_DELETION, received).message
    assert delivered.attributes == {"source": "crm"}
    assert actor_of(delivered.attributes) == UNAUTHENTICATED


def test_our_stamp_stays_here_because_the_gateway_sets_its_own() -> None:
    assert dict(to_proto(Message(b"{}", attributes=FORGED)).attributes) == {"source": "crm"}


def test_the_command_line_stamps_what_is_acted_on_and_takes_no_other_stamp() -> None:
    assert actor_of(stamp(ACCOUNT_DELETION, "cli:anna")) == "cli:anna"
    assert stamp(WRITER, "cli:anna") == {}
    with pytest.raises(InvalidInputError, match=PUBLISHER_ATTRIBUTE):
        parse_attributes([f"{PUBLISHER_ATTRIBUTE}=cli:root"])


def test_what_a_message_claims_about_who_asks_is_kept_as_a_claim() -> None:
    body = b'{"eventId": "d", "customerId": 7, "requestedBy": "Compliance Officer", "occurredAt": 1000}'
    request = decode_deletion(body)
    assert (request.actor, request.claimed_by) == (UNAUTHENTICATED, "Compliance Officer")
    assert decode_deletion(body, "pubsub:crm").actor == "pubsub:crm"
