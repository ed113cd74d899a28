"""The messages of clients, and the answers to them."""

import functools
import time
from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from clientmgr.live.tokens import Grant, TokenError, read_token
from streaming.live.broadcast.frames import TOPIC_PREFIX, error_frame, event_of, message_frame, subscribed_frames
from streaming.live.broadcast.hub import Hub
from streaming.live.broadcast.sending.outbox import Outbox
from streaming.live.broadcast.subscriptions import Topic

UNAUTHENTICATED = 4401
FORBIDDEN = 4403
SESSION_ENDED = "the session has ended"


class Client(Protocol):
    """A connection, as far as commands know it."""

    grant: Grant | None
    """What it may see; None: it has not shown a token yet."""

    @property
    def outbox(self) -> Outbox: ...

    @property
    def subscriptions(self) -> Collection[str]:
        """The events that it watches."""

    def subscribe(self, event: str) -> Topic: ...

    def unsubscribe(self, event: str) -> None: ...

    def admit(self, grant: Grant) -> bool:
        """Let it see what the grant allows. False: there was no place for it, and it is closed."""

    def refuse(self, code: int, reason: str) -> None:
        """Close it, with the reason."""


class Subscribe(msgspec.Struct, tag_field="type", tag="subscribe"):
    topic: str
    token: str = ""
    """Only in a client's first message."""


class Unsubscribe(msgspec.Struct, tag_field="type", tag="unsubscribe"):
    topic: str


class Authenticate(msgspec.Struct, tag_field="type", tag="auth"):
    token: str


class ListEvents(msgspec.Struct, tag_field="type", tag="events"):
    pass


Command = Subscribe | Unsubscribe | Authenticate | ListEvents
_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)


def handle(hub: Hub, client: Client, text: bytes) -> None:
    """Do what a message asks for, or answer what is wrong with it."""
    if len(text) > hub.settings.live_ws_max_frame_bytes:
        answer_error(client, "too_large", f"a message has at most {hub.settings.live_ws_max_frame_bytes} bytes")
        return
    try:
        command = _decoder.decode(text)
    except msgspec.ValidationError as error:
        unknown_type = str(error).endswith("`$.type`") or "`type`" in str(error)
        answer_error(client, "unknown_type" if unknown_type else "invalid_message", str(error))
        return
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        answer_error(client, "bad_json", f"a message is a JSON object: {error}")
        return
    if isinstance(command, Authenticate) and hub.settings.live_auth == "off":
        # Everybody may watch: a client that shows a token must not fare worse than one that shows none.
        client.outbox.reply(message_frame(type="authenticated"))
        return
    if isinstance(command, Authenticate):
        authenticate(hub, client, command.token)
        return
    if client.grant is None and isinstance(command, Subscribe) and command.token:
        authenticate(hub, client, command.token, answer=False)
        if client.grant is None:
            return
    if client.grant is None:
        client.refuse(UNAUTHENTICATED, "the first message must bring the token")
    elif isinstance(command, ListEvents):
        _list_events(hub, client)
    else:
        _on_topic(hub, client, command)


def authenticate(hub: Hub, client: Client, token: str, *, answer: bool = True) -> None:
    """Replace the client's grant by the token's. A bad token ends the connection."""
    try:
        grant = read_token(hub.token_key, token)
    except TokenError as error:
        client.refuse(UNAUTHENTICATED, str(error))
        return
    if hub.ended is not None and hub.ended.is_ended(grant.session, grant.user, grant.started_at):
        client.refuse(UNAUTHENTICATED, SESSION_ENDED)
        return
    if not client.admit(grant):
        return
    for event in [event for event in client.subscriptions if not grant.allows(event)]:
        client.unsubscribe(event)
        client.outbox.reply(message_frame(type="unsubscribed", topic=TOPIC_PREFIX + event))
    if answer:
        client.outbox.reply(message_frame(type="authenticated", expiresAt=int(grant.expires_at * 1000)))


def answer_error(client: Client, code: str, message: str) -> None:
    client.outbox.reply(error_frame(code, message))


def _list_events(hub: Hub, client: Client) -> None:
    may_see: Callable[[str], bool] = client.grant.allows if client.grant else lambda _: False
    events = [listed for listed in hub.participants.events() if may_see(listed.event)]
    client.outbox.reply(message_frame(type="events", events=events, now=int(time.time() * 1000)))


def _on_topic(hub: Hub, client: Client, command: Subscribe | Unsubscribe) -> None:
    event = event_of(command.topic)
    if event is None:
        answer_error(client, "unknown_topic", f"a topic is {TOPIC_PREFIX} and the id of an event")
    elif isinstance(command, Unsubscribe):
        client.unsubscribe(event)
        client.outbox.reply(message_frame(type="unsubscribed", topic=command.topic))
    elif client.grant is None or not client.grant.allows(event):
        answer_error(client, "forbidden", f"the token does not allow {command.topic}")
    elif event not in client.subscriptions and (len(client.subscriptions) >= hub.settings.live_ws_max_subscriptions):
        answer_error(
            client,
            "too_many_subscriptions",
            f"a connection has at most {hub.settings.live_ws_max_subscriptions} subscriptions",
        )
    else:
        # Subscribe first, then take the snapshot. Nothing can be sent between the two, so no position is missed.
        topic = client.subscribe(event)
        client.outbox.reply(_snapshot(hub, topic))


def send_snapshots(hub: Hub) -> None:
    """Send a snapshot to all subscribers. Those who subscribed before anything was known got an empty one."""
    frames = {topic.event: _snapshot(hub, topic) for topic in hub.topics}
    for watcher in list(hub.watchers):
        for event in list(watcher.subscriptions):
            watcher.in_turn(functools.partial(watcher.outbox.reply, frames[event]))


def _snapshot(hub: Hub, topic: Topic) -> bytes:
    known = hub.last_positions.bodies(hub.participants.devices_of(topic.event))
    return subscribed_frames(topic.name, topic.position_start, known)
