"""How connections to PostgreSQL are made."""

import os
import socket

import pytest
from psycopg.conninfo import conninfo_to_dict

from clientmgr.base.database import Database, Role

needs_linux = pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has such a limit")


@needs_linux
def test_a_host_that_is_silently_gone_is_given_up_within_half_a_minute(database: Database) -> None:
    with database.connect(Role.READER) as connection, socket.socket(fileno=os.dup(connection.fileno())) as own:
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        waits_s = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        waits_s += 3 * own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        assert waits_s == 30


def test_what_the_url_says_about_silent_hosts_counts() -> None:
    conninfo = Database("postgresql://me@there/db?tcp_user_timeout=5000&keepalives_idle=99").conninfo(Role.OWNER)
    found = conninfo_to_dict(conninfo)
    assert (found["tcp_user_timeout"], found["keepalives_idle"]) == ("5000", "99")
