"""What Spark runs as its Python (PYSPARK_PYTHON): daemons come from the nursery, all else is the real Python's.

Spark wants a daemon for each kind of worker and, by Spark Connect, for each session. Each would import the same for a
second or two. Here the nursery forks one that has imported everything, takes Spark's pipes, and we wait for its end.
Standard library only.

usage: python.py PYTHON SOCKET -m pyspark.daemon WORKER_MODULE
       python.py PYTHON SOCKET anything else that the real Python understands
"""

import contextlib
import json
import os
import socket
import sys

DAEMON = ["-m", "pyspark.daemon"]


def main(python: str, path: str, arguments: list[str]) -> None:
    if arguments[:2] == DAEMON:
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as nursery, contextlib.suppress(OSError):
            nursery.connect(path)
            _hand_over(nursery, arguments)
            return
    os.execv(python, [python, *arguments])  # noqa: S606  # no shell is wanted


def _hand_over(nursery: socket.socket, arguments: list[str]) -> None:
    request = {"arguments": arguments[1:], "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109  # no time for pathlib
    text = json.dumps(request).encode()
    socket.send_fds(nursery, [len(text).to_bytes(4, "big")], [0, 1, 2])
    nursery.sendall(text)
    # The JVM closes its ends when we end: so we stay as long as the daemon does, and keep none of them ourselves.
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    with contextlib.suppress(OSError):
        while nursery.recv(64):
            pass


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
