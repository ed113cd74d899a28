"""What a client can say, and what it is answered."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from clientmgr.live.tokens import TokenError, read_token
from streaming.live.broadcast.frames import TOPIC_PREFIX, error_frame, event_of, message_frame, subscribed_frame
from streaming.live.broadcast.hub import Hub
from streaming.live.broadcast.topics import Topic

if TYPE_CHECKING:
    from streaming.live.broadcast.connection import Connection

UNAUTHENTICATED = 4401
FORBIDDEN = 4403


class Subscribe(msgspec.Struct, tag_field="type", tag="subscribe"):
    topic: str
    token: str = ""
    """Of a client whose first message this is."""


class Unsubscribe(msgspec.Struct, tag_field="type", tag="unsubscribe"):
    topic: str


class Authenticate(msgspec.Struct, tag_field="type", tag="auth"):
    token: str


class ListEvents(msgspec.Struct, tag_field="type", tag="events"):
    pass


Command = Subscribe | Unsubscribe | Authenticate | ListEvents
_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)


def handle(hub: Hub, connection: "Connection", text: bytes) -> None:
    """Do what a client asks for, or tell it what is wrong with that."""
    if len(text) > hub.settings.live_ws_max_frame_bytes:
        refuse(connection, "too_large", f"a message has at most {hub.settings.live_ws_max_frame_bytes} bytes")
        return
    try:
        command = _decoder.decode(text)
    except msgspec.ValidationError as error:
        unknown_type = str(error).endswith("`$.type`") or "`type`" in str(error)
        refuse(connection, "unknown_type" if unknown_type else "invalid_message", str(error))
        return
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        refuse(connection, "bad_json", f"a message is a JSON object: {error}")
        return
    if isinstance(command, Authenticate) and hub.settings.live_auth == "off":
        # Whoever brings a token is not refused what everybody else gets.
        connection.outbox.reply(message_frame(type="authenticated"))
        return
    if isinstance(command, Authenticate):
        authenticate(hub, connection, command.token)
        return
    if connection.grant is None and isinstance(command, Subscribe) and command.token:
        authenticate(hub, connection, command.token, tell=False)
        if connection.grant is None:
            return
    if connection.grant is None:
        connection.refuse(UNAUTHENTICATED, "the first message must bring the token")
    elif isinstance(command, ListEvents):
        _list_events(hub, connection)
    else:
        _on_topic(hub, connection, command)


def authenticate(hub: Hub, connection: "Connection", token: str, *, tell: bool = True) -> None:
    """Take the token's grant in place of any before it; a bad token ends the connection."""
    try:
        connection.grant = read_token(hub.token_key, token)
    except TokenError as error:
        connection.refuse(UNAUTHENTICATED, str(error))
        return
    for event in [event for event in connection.subscriptions if not connection.grant.allows(event)]:
        connection.unsubscribe(event)
        connection.outbox.reply(message_frame(type="unsubscribed", topic=TOPIC_PREFIX + event))
    if tell:
        connection.outbox.reply(message_frame(type="authenticated", expiresAt=int(connection.grant.expires_at * 1000)))


def refuse(connection: "Connection", code: str, message: str) -> None:
    connection.outbox.reply(error_frame(code, message))


def _list_events(hub: Hub, connection: "Connection") -> None:
    may_see: Callable[[str], bool] = connection.grant.allows if connection.grant else lambda _: False
    events = [listed for listed in hub.participants.events() if may_see(listed.event)]
    connection.outbox.reply(message_frame(type="events", events=events, now=int(time.time() * 1000)))


def _on_topic(hub: Hub, connection: "Connection", command: Subscribe | Unsubscribe) -> None:
    event = event_of(command.topic)
    if event is None:
        refuse(connection, "unknown_topic", f"a topic is {TOPIC_PREFIX} and the id of an event")
    elif isinstance(command, Unsubscribe):
        connection.unsubscribe(event)
        connection.outbox.reply(message_frame(type="unsubscribed", topic=command.topic))
    elif connection.grant is None or not connection.grant.allows(event):
        refuse(connection, "forbidden", f"the token does not allow {command.topic}")
    elif event not in connection.subscriptions and (
        len(connection.subscriptions) >= hub.settings.live_ws_max_subscriptions
    ):
        refuse(
            connection,
            "too_many_subscriptions",
            f"a connection has at most {hub.settings.live_ws_max_subscriptions} subscriptions",
        )
    else:
        # First subscribed, then the snapshot: both happen before anything else can be sent, so nothing falls between.
        topic = connection.subscribe(event)
        connection.outbox.reply(_snapshot(hub, topic))


def send_snapshots(hub: Hub) -> None:
    """To all who are subscribed already: those who came while we knew nothing have been told so."""
    for topic in list(hub.topics):
        frame = _snapshot(hub, topic)
        for connection in topic.subscribers():
            connection.outbox.reply(frame)


def _snapshot(hub: Hub, topic: Topic) -> bytes:
    known = hub.last_positions.bodies(hub.participants.devices_of(topic.event))
    return subscribed_frame(topic.name, topic.position_start, known)
