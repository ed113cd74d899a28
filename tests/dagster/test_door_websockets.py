"""WebSockets to Dagster: our own pages open them, signed in, and nothing but subscriptions goes through."""

import base64
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from clientmgr_dashboard.access import authentication, guard, sessions
from clientmgr_dashboard.access.authentication import COOKIE, sessions_of
from clientmgr_dashboard.access.users import Role, user_line
from tests.dagster.doors import LAUNCH_INLINE, VERSION, Doors
from tests.dashboard.house import PASSWORDS


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
    authorization: str = ""


def websocket(doors: Doors, caller: Caller) -> ClientConnection:
    port = urlsplit(doors.guarded_address if caller.guarded else doors.open_address).port
    headers = {"Cookie": f"{COOKIE}={doors.sessions[caller.name]}"} if caller.name else {}
    if caller.authorization:
        headers["Authorization"] = caller.authorization
    return connect(
        f"ws://{caller.host or '127.0.0.1'}:{port}/graphql",
        sock=socket.create_connection(("127.0.0.1", port)),
        origin=Origin(caller.origin) if caller.origin else None,
        additional_headers=headers,
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


def say_hello(connection: ClientConnection) -> object:
    connection.send(json.dumps({"type": "connection_init"}))
    return json.loads(connection.recv(10))


def is_ended(connection: ClientConnection) -> bool:
    """By the guard, instead of an answer."""
    with pytest.raises(ConnectionClosed) as closed:
        say_hello(connection)
    return closed.value.rcvd is not None and closed.value.rcvd.code == 1008


def vera_by_password() -> Caller:
    return Caller(authorization="Basic " + base64.b64encode(f"vera:{PASSWORDS['vera']}".encode()).decode())


@pytest.fixture
def looks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LOOK_AGAIN_AFTER_S", 0.0)


@pytest.fixture
def users(doors: Doors) -> Iterator[Path]:
    """The users file. It is as it was afterwards."""
    file = Path(doors.settings.dashboard_users_file)
    before = file.read_text()
    yield file
    file.write_text(before)


def without_vera(users: Path) -> list[str]:
    return [line for line in users.read_text().splitlines() if not line.startswith("vera:")]


@pytest.mark.usefixtures("looks_again_at_once")
def test_a_websocket_ends_with_the_session_that_opened_it(doors: Doors, users: Path) -> None:
    with websocket(doors, Caller(doors.guarded_address, "vera")) as connection:
        say_hello(connection)
        users.write_text("\n".join(without_vera(users)))
        assert is_ended(connection)


@pytest.mark.usefixtures("looks_again_at_once")
@pytest.mark.parametrize("change", ["removed", "another password", "another role"])
def test_a_websocket_opened_by_name_and_password_ends_with_the_user_or_the_password(
    doors: Doors, users: Path, change: str
) -> None:
    vera = next(line for line in users.read_text().splitlines() if line.startswith("vera:"))
    changed = {
        "removed": [],
        "another password": [user_line("vera", Role.VIEWER, "another password", cost=2)],
        "another role": [vera.replace(":viewer:", ":operator:")],
    }[change]
    with websocket(doors, vera_by_password()) as connection:
        assert say_hello(connection) == {"type": "connection_ack"}
        users.write_text("\n".join([*without_vera(users), *changed]))
        assert is_ended(connection)


@pytest.mark.usefixtures("looks_again_at_once")
def test_a_websocket_opened_by_name_and_password_stays_and_the_password_is_not_tried_again(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    with websocket(doors, vera_by_password()) as connection:
        say_hello(connection)
        monkeypatch.setattr(authentication, "is_password", lambda *_: pytest.fail("the password is tried again"))
        assert say_hello(connection) == {"type": "connection_ack"}


@pytest.mark.usefixtures("looks_again_at_once")
def test_a_websocket_of_a_process_ends_with_its_token(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    token = sessions_of(doors.settings).process_token("demo")
    with websocket(doors, Caller(authorization=f"Bearer {token}")) as connection:
        assert say_hello(connection) == {"type": "connection_ack"}
        later = time.time() + sessions.PROCESS_TOKEN_S
        monkeypatch.setattr(time, "time", lambda: later)
        assert is_ended(connection)
