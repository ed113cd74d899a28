"""The messages of clients, and the answers to them."""

import functools
import time
from collections.abc import Callable, Collection
from typing import Annotated, Protocol

import msgspec

from clientmgr.live.tokens import Grant, TokenError, read_token
from streaming.live.broadcast.broadcast_metrics import OUTBOUND
from streaming.live.broadcast.frames import (
    TOPIC_PREFIX,
    Missed,
    Subscribed,
    encode,
    event_of,
    subscribed,
    text_frame,
)
from streaming.live.broadcast.hub import Hub
from streaming.live.broadcast.sending.outbox import Outbox
from streaming.live.broadcast.subscriptions import Topic

UNAUTHENTICATED = 4401
FORBIDDEN = 4403
SESSION_ENDED = "the session has ended"


class Listener(Protocol):
    """A connection, as far as answers know it."""

    @property
    def deflate_bits(self) -> int:
        """The window of compressed messages to it; 0: it takes none."""

    @property
    def outbox(self) -> Outbox: ...


class Client(Listener, Protocol):
    """A connection, as far as commands know it."""

    grant: Grant | None
    """What it may see; None: it has not shown a token yet."""

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
    since: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Epoch milliseconds by the server's clock: what arrived from then on is wanted too."""
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
        _answer(client, "authenticated")
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
        _answer(client, "unsubscribed", topic=TOPIC_PREFIX + event)
    if answer:
        _answer(client, "authenticated", expiresAt=int(grant.expires_at * 1000))


def answer_error(client: Client, code: str, message: str) -> None:
    _answer(client, "error", code=code, message=message)


def _answer(client: Client, kind: str, **fields: object) -> None:
    message = encode(type=kind, **fields)
    OUTBOUND.labels(kind).inc()
    client.outbox.reply(text_frame(message, client.deflate_bits), cost=len(message))


def _list_events(hub: Hub, client: Client) -> None:
    may_see: Callable[[str], bool] = client.grant.allows if client.grant else lambda _: False
    events = [listed for listed in hub.participants.events() if may_see(listed.event)]
    _answer(client, "events", events=events, now=int(time.time() * 1000))


def _on_topic(hub: Hub, client: Client, command: Subscribe | Unsubscribe) -> None:
    event = event_of(command.topic)
    if event is None:
        answer_error(client, "unknown_topic", f"a topic is {TOPIC_PREFIX} and the id of an event")
    elif isinstance(command, Unsubscribe):
        client.unsubscribe(event)
        _answer(client, "unsubscribed", topic=command.topic)
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
        if command.since is not None and not hub.history.has_begun:
            hub.asked_early[client, event] = command.since
        _tell(client, _subscribed(hub, topic, command.since))


def send_snapshots(hub: Hub) -> None:
    """Send a snapshot to all subscribers. Those who subscribed before anything was known got an empty one."""
    topics = {topic.event: topic for topic in hub.topics}
    answers = {event: _subscribed(hub, topic, None) for event, topic in topics.items()}
    for watcher in list(hub.watchers):
        for event in list(watcher.subscriptions):
            since_ms = hub.asked_early.get((watcher, event))
            answer = answers[event] if since_ms is None else _subscribed(hub, topics[event], since_ms)
            watcher.in_turn(functools.partial(_tell, watcher, answer))
    hub.asked_early.clear()


def _subscribed(hub: Hub, topic: Topic, since_ms: int | None) -> Subscribed:
    devices = hub.participants.devices_of(topic.event)
    missed = None
    if since_ms is not None:
        missed = Missed(hub.history.since(devices, since_ms), hub.history.covers(since_ms))
    return subscribed(topic.name, topic.position_start, hub.last_positions.bodies(devices), missed)


def _tell(listener: Listener, answer: Subscribed) -> None:
    OUTBOUND.labels("subscribed").inc()
    OUTBOUND.labels("position").inc(answer.positions)
    listener.outbox.reply(answer.frames(listener.deflate_bits), cost=answer.size)
