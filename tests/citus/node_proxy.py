"""Stands between a coordinator and one of its nodes, and can lose what passes.

The node is gone, silent, or cut off at a certain statement.
"""

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class NodeProxy:
    """One thread for all connections. Change the fields while it runs."""

    node: tuple[str, int]
    cut_before: bytes = b""
    """The connection on which this is sent to the node ends, and the node never sees it."""
    cut_after: bytes = b""
    """The connection on which this is sent to the node ends before its answer comes back."""
    is_silent: bool = False
    cuts: int = 0
    _pairs: dict[socket.socket, socket.socket] = field(default_factory=dict)
    _awaited: set[socket.socket] = field(default_factory=set)
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _ended: bool = False

    @property
    def port(self) -> int:
        return int(self._port)

    def __post_init__(self) -> None:
        self._port = self._listener.getsockname()[1]
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def lose(self) -> None:
        """The node is gone: what is open ends, and nobody can connect."""
        with self._lock:
            self._selector.unregister(self._listener)
            self._listener.close()
            while self._pairs:
                self._end(next(iter(self._pairs)))

    def come_back(self) -> None:
        with self._lock:
            self._listener = socket.create_server(("127.0.0.1", self._port))
            self._selector.register(self._listener, selectors.EVENT_READ)

    def close(self) -> None:
        self._ended = True
        self._thread.join()
        for one in (*self._pairs, self._listener):
            one.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select(timeout=0.02):
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._pairs:
                        self._pass_on(key.fileobj, towards_node=bool(key.data))

    def _accept(self) -> None:
        caller, _ = self._listener.accept()
        if self.is_silent:
            self._pairs[caller] = caller
            return
        node = socket.create_connection(self.node)
        self._pairs |= {caller: node, node: caller}
        self._selector.register(caller, selectors.EVENT_READ, True)
        self._selector.register(node, selectors.EVENT_READ, False)

    def _pass_on(self, one: socket.socket, *, towards_node: bool) -> None:
        other = self._pairs[one]
        try:
            data = one.recv(65536)
        except OSError:
            data = b""
        must_end = bool(self.cut_before and towards_node and self.cut_before in data) or one in self._awaited
        if must_end:
            self.cuts += 1
        if not data or must_end:
            self._end(one)
            return
        if self.cut_after and towards_node and self.cut_after in data:
            self._awaited.add(other)
        with contextlib.suppress(OSError):
            other.sendall(data)

    def _end(self, one: socket.socket) -> None:
        for each in {one, self._pairs.get(one, one)}:
            self._pairs.pop(each, None)
            self._awaited.discard(each)
            with contextlib.suppress(KeyError):
                self._selector.unregister(each)
            each.close()


@contextlib.contextmanager
def between(node: tuple[str, int]) -> Iterator[NodeProxy]:
    proxy = NodeProxy(node)
    yield proxy
    proxy.close()
