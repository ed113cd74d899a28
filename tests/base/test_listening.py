"""The sockets that our services listen on."""

import socket

from clientmgr.base.listening import listening


def test_an_answer_in_two_parts_does_not_wait_for_the_clients_acknowledgement() -> None:
    with (
        listening("127.0.0.1", 0, settings="PORT", backlog=1) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
