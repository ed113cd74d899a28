"""WebSockets to Dagster: our own pages open them, signed in, and nothing but subscriptions goes through."""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from clientmgr_dashboard.access import guard
from clientmgr_dashboard.access.authentication import COOKIE
from tests.dagster.doors import LAUNCH_INLINE, VERSION, Doors


@pytest.fixture(autouse=True)
def _no_run_is_left(doors: Doors) -> Iterator[None]:
    before = len(doors.runs())
    yield
    assert len(doors.runs()) == before


@dataclass(frozen=True)
class Caller:
    """Who opens a WebSocket, and from where."""

    origin: str = ""
    name: str = ""
    host: str = ""
    guarded: bool = True


def websocket(doors: Doors, caller: Caller) -> ClientConnection:
    port = urlsplit(doors.guarded_address if caller.guarded else doors.open_address).port
    return connect(
        f"ws://{caller.host or '127.0.0.1'}:{port}/graphql",
        sock=socket.create_connection(("127.0.0.1", port)),
        origin=Origin(caller.origin) if caller.origin else None,
        additional_headers={"Cookie": f"{COOKIE}={doors.sessions[caller.name]}"} if caller.name else {},
        subprotocols=[Subprotocol("graphql-ws")],
    )


def test_a_websocket_is_opened_by_our_own_page_or_by_a_script_that_is_somebody(doors: Doors) -> None:
    for caller in (
        Caller("http://evil.example", "otto"),
        Caller("null", "otto"),
        Caller(f"http://localhost:{doors.settings.dagster_port}", "otto"),
        Caller(doors.dashboard_address, "otto"),
        Caller(doors.guarded_address),
        Caller(),
        Caller("http://evil.example", guarded=False),
        Caller(host="evil.example", guarded=False),
    ):
        with pytest.raises(InvalidStatus) as refused:
            websocket(doors, caller)
        assert refused.value.response.status_code == 403, caller
    for caller in (
        Caller(doors.guarded_address, "vera"),
        Caller(name="otto"),
        Caller(doors.open_address, guarded=False),
        Caller(guarded=False),
    ):
        with websocket(doors, caller) as connection:
            connection.send(json.dumps({"type": "connection_init"}))
            assert json.loads(connection.recv(10)) == {"type": "connection_ack"}


@pytest.mark.parametrize(
    "frame",
    [
        json.dumps({"type": "start", "id": "1", "payload": {"query": LAUNCH_INLINE}}),
        json.dumps({"type": "start", "id": "1", "payload": {"query": VERSION}}),
        json.dumps(
            {
                "type": "start",
                "id": "1",
                "payload": {
                    "query": "subscription A { locationStateChangeEvents { event { message } } } "
                    + LAUNCH_INLINE.replace("mutation", "mutation B", 1),
                    "operation_name": "B",
                },
            }
        ),
        json.dumps({"type": "start", "id": "1"}),
        "[]",
        "not JSON",
        b"{}",
    ],
)
def test_a_websocket_that_sends_anything_but_a_subscription_is_closed(doors: Doors, frame: str | bytes) -> None:
    with websocket(doors, Caller(name="otto")) as connection:
        connection.send(frame)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


def test_a_websocket_ends_with_the_session_that_opened_it(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LOOK_AGAIN_AFTER_S", 0.0)
    users = Path(doors.settings.dashboard_users_file)
    before = users.read_text()
    with websocket(doors, Caller(doors.guarded_address, "vera")) as connection:
        connection.send(json.dumps({"type": "connection_init"}))
        connection.recv(10)
        try:
            users.write_text("\n".join(line for line in before.splitlines() if not line.startswith("vera:")))
            connection.send(json.dumps({"type": "connection_init"}))
            with pytest.raises(ConnectionClosed) as closed:
                connection.recv(10)
        finally:
            users.write_text(before)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
