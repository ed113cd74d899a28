"""`python -m clientmgr_dagster.code_server.awaited SOCKET COMMAND …`: becomes the command when the server listens."""

import os
import sys
from pathlib import Path

from clientmgr.operations.code_server_socket import wait_until_code_server_listens


def main(arguments: list[str]) -> None:
    socket, *command = arguments
    wait_until_code_server_listens(Path(socket))
    os.execv(command[0], command)  # noqa: S606  # no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1:])
