"""Which processes run, and where they listen.

A process is known by its pid and start time, so that a reused pid is never taken for it.
"""

import contextlib
from collections.abc import Iterable

import psutil  # type: ignore[import-untyped]  # it ships no types

from clientmgr.base.exposure import is_loopback
from tests.waiting import eventually


def with_descendants(pid: int) -> list[psutil.Process]:
    """The process and all that it and its children started."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def running(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended. A zombie has: whoever should collect it is not our matter."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def mentioning(text: object, *, among: Iterable[psutil.Process] | None = None) -> list[psutil.Process]:
    """The running processes with `text` in their command line."""
    found = []
    for process in psutil.process_iter() if among is None else among:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if any(str(text) in argument for argument in process.cmdline()):
                found.append(process)
    return running(found)


def listening_beyond_loopback(processes: Iterable[psutil.Process]) -> list[str]:
    """Where these take connections from other machines: address, port and command."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for socket in process.net_connections(kind="inet"):
                if socket.status == psutil.CONN_LISTEN and not is_loopback(_without_mapping(socket.laddr.ip)):
                    found.append(f"{socket.laddr.ip}:{socket.laddr.port} of {' '.join(process.cmdline())}")
    return found


def listens_on(processes: Iterable[psutil.Process]) -> set[int]:
    """The ports on which these take connections."""
    ports = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            connections = process.net_connections(kind="inet")
            ports |= {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
    return ports


def _without_mapping(address: str) -> str:
    """Java listens on IPv6 sockets for IPv4 addresses."""
    return address.removeprefix("::ffff:")


def wait_until_gone(processes: Iterable[psutil.Process], *, within_s: float = 60.0) -> None:
    watched = list(processes)
    eventually(lambda: not running(watched), f"none of {watched} runs any more", within_s=within_s)
