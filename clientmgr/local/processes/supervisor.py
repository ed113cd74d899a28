"""Keeps processes running: starts them in order, restarts one that dies with backoff, stops them in reverse order."""

import contextlib
import json
import logging
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from clientmgr.base.backoff import backoff_s
from clientmgr.base.errors import ClientManagerError
from clientmgr.base.logs import get_logger, write_line
from clientmgr.base.masking import masked_words
from clientmgr.local.children.guarded import GuardedProcess

log = get_logger(__name__)

FIRST_RESTART_DELAY_S = 1.0
LONGEST_RESTART_DELAY_S = 60.0
HEALTHY_AFTER_S = 60.0
"""A process that ran this long has recovered: its next failure starts with the shortest delay again."""
LOOK_EVERY_S = 0.2

_ANSI_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# What Dagster's runs write to the console; nothing makes them write JSON.
_DAGSTER_LINE = re.compile(r"[\d-]+ [\d:]+ [+-]\d{4} - (?P<logger>\S+) - (?P<level>[A-Z]+) - (?P<event>.*)")


class Supervised(Protocol):
    """What can be kept running. The embedded servers are such, and so is a `Program`."""

    name: str

    def exit_code(self) -> int | None:
        """None while it runs."""

    def restart(self) -> None:
        """Start it again after it died."""

    def stop(self) -> object: ...


@dataclass
class Program:
    """A command that is to run for as long as we do. Its output goes line by line to our log, under its name."""

    name: str
    command: Sequence[str | Path]
    env: Mapping[str, str]
    grace_seconds: float = 20.0
    forward: Callable[[str, str], None] = field(default_factory=lambda: forward_line)
    """Puts a line of it, given its name and the line, in our log."""

    def __post_init__(self) -> None:
        self._process: GuardedProcess | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        self.request_stop()
        process = GuardedProcess(
            self.name, self.command, env=self.env, output=subprocess.PIPE, grace_seconds=self.grace_seconds
        )
        self._process = process
        self._reader = threading.Thread(target=self._forward_output, args=(process,), daemon=True)
        self._reader.start()

    restart = start

    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.exit_code()

    def request_stop(self) -> None:
        """Ask it to stop, without waiting."""
        if self._process is not None:
            self._process.request_stop()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
        if self._reader is not None:
            self._reader.join(timeout=5)

    def _forward_output(self, process: GuardedProcess) -> None:
        if process.output is None:
            return
        with process.output as lines:
            for line in lines:
                self.forward(self.name, line.decode(errors="replace").rstrip())


def forward_line(name: str, line: str) -> None:
    """A child's line in our log: one of our own records as it is, another's under the child's name."""
    line = _ANSI_COLOUR.sub("", line)
    record = _record(line)
    if "ecs.version" in record:
        write_line(line)
    elif "event" in record:
        _log_dagster_record(name, record)
    elif line:
        # Who logs, logs records. A bare line is a traceback or a library's warning: not to be filtered as chatter.
        get_logger(name).warning(line)


def forward_console_line(name: str, line: str) -> None:
    """A line of a program of ours that logs for people, as we do: it needs no more than to say whose it is."""
    # Its records are masked; what it wrote before it could log, or as it died, is not.
    write_line(f"{masked_words(line)} process={name}")


def forward_record_or_console_line(name: str, line: str) -> None:
    """A line of a program that logs for people, with children that log records."""
    (forward_line if _record(line) else forward_console_line)(name, line)


def _record(line: str) -> dict[str, Any]:
    if line.startswith("{"):
        with contextlib.suppress(ValueError):
            record: dict[str, Any] = json.loads(line)
            return record
    match = _DAGSTER_LINE.fullmatch(line)
    return match.groupdict() if match else {}


def _log_dagster_record(name: str, record: dict[str, Any]) -> None:
    """structlog's JSON. Of an exception it tells the type and the message, in a list whose last item is of no use."""
    level = logging.getLevelNamesMapping().get(str(record.get("level", "")).upper(), logging.INFO)
    context = {"source": record["logger"]} if "logger" in record else {}
    match record.get("exc_info"):
        case [_, str(error), *_]:
            context["error"] = error
    get_logger(name).log(level, str(record["event"]), **context)


class Supervisor:
    """Watches what it was given until it is told to stop."""

    def __init__(self, watched: Iterable[Supervised], clock: Callable[[], float] = time.monotonic) -> None:
        self._watched = [_Watch(item, clock) for item in watched]

    def run(self, stop: threading.Event) -> None:
        """Restart what dies, until `stop` is set. It does not stop anything: their owners do, in their order."""
        while not stop.wait(LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """See once who died and whose time to start again has come."""
        for watch in self._watched:
            watch.look()


class _Watch:
    """One process: whether it runs, since when, and when to try again."""

    def __init__(self, item: Supervised, clock: Callable[[], float]) -> None:
        self._item = item
        self._clock = clock
        self._deaths = 0
        self._running_since = clock()
        self._restart_at: float | None = None

    def look(self) -> None:
        now = self._clock()
        if self._restart_at is not None:
            if now >= self._restart_at:
                self._restart()
            return
        code = self._item.exit_code()
        if code is None:
            if now - self._running_since > HEALTHY_AFTER_S:
                self._deaths = 0
            return
        self._schedule(f"exit code {code}" if code < 128 else f"signal {code - 128}")

    def _schedule(self, cause: str) -> None:
        self._deaths += 1
        # The whole delay, without jitter: whoever watches the terminal is told when to expect it.
        delay_s = backoff_s(self._deaths, first_s=FIRST_RESTART_DELAY_S, longest_s=LONGEST_RESTART_DELAY_S, draw=1.0)
        log.error("process died", name=self._item.name, cause=cause, restart_in_s=delay_s)
        self._restart_at = self._clock() + delay_s

    def _restart(self) -> None:
        self._restart_at = None
        try:
            self._item.restart()
        except (ClientManagerError, OSError) as error:
            self._schedule(str(error))
            return
        self._running_since = self._clock()
        log.info("process restarted", name=self._item.name)
