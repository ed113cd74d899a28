"""What `up` and `demo` show on a terminal: the box, what goes wrong, and one live line. The log goes to a file.

Everywhere else, and with LOG_FORMAT=console, the log is what it always was.
"""

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO, cast

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from clientmgr.base.logs import configure_logging
from clientmgr.base.private_files import ensure_own, ensure_private_folder
from clientmgr.base.settings import Settings

LOG_FILE: Final = "clientmgr.log"
LOG_FILE_BYTES: Final = 20_000_000
LOUD: Final = frozenset({"warning", "error", "critical"})
OURS: Final = ("clientmgr", "streaming")
"""Beginnings of our loggers' names. What others say, Spark above all, is in the file."""
SYSTEM: Final = "clientmgr.local."
"""What runs the system: it says what goes on."""
NAMES_AT_MOST: Final = 3
REDRAWS_A_SECOND: Final = 4


class Terminal(io.TextIOBase):
    """A stream for the log: each record goes to the file, and of some a person is told."""

    def __init__(self, file: Path, console: Console) -> None:
        self.file = file
        self._console = console
        self._kept = file.open("a", encoding="utf-8")
        self._begun = time.monotonic()
        self._is_up = False
        self._now = "starting"
        self._held_back: list[Text] = []
        """Warnings from before the box: that comes first."""
        self._spinner = Spinner("dots", self._line())

    def __rich__(self) -> RenderableType:
        self._spinner.update(text=self._line())
        return self._spinner

    def show(self, box: RenderableType) -> None:
        """Say that all is up."""
        self._is_up, self._now = True, "Ctrl-C stops everything"
        self._console.print(box)
        self._print_held_back()

    def write(self, text: str, /) -> int:
        if not self._kept.closed:
            self._kept.write(text)
        for line in text.splitlines():
            self._tell(line)
        return len(text)

    def flush(self) -> None:
        if self._kept.closed:
            return
        self._kept.flush()
        if self._kept.tell() > LOG_FILE_BYTES:
            self._kept.close()
            self.file.replace(self.file.with_name(f"{LOG_FILE}.1"))
            self._kept = self.file.open("a", encoding="utf-8")

    def close(self) -> None:
        self._print_held_back()
        self._kept.close()

    def _print_held_back(self) -> None:
        while self._held_back:
            self._console.print(self._held_back.pop(0))

    def _line(self) -> Text:
        minutes, seconds = divmod(int(time.monotonic() - self._begun), 60)
        passed = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
        return Text(f"{'up' if self._is_up else 'starting'}, {passed}: {self._now}", overflow="ellipsis", no_wrap=True)

    def _tell(self, line: str) -> None:
        try:
            record: dict[str, Any] = json.loads(line)
        except ValueError:
            return
        level, process = record.get("log.level"), record.get("process.name")
        if level in LOUD and str(record.get("log.logger", "")).startswith(OURS):
            whose = "" if process == "clientmgr" else f" ({process})"
            error = f": {record['error.message']}" if "error.message" in record else ""
            told = Text(f"{_told(record)}{error}{whose}", style="yellow" if level == "warning" else "bold red")
            if self._is_up or level != "warning":
                self._console.print(told)
            else:
                self._held_back.append(told)
        elif str(record.get("log.logger", "")).startswith(SYSTEM):
            self._now = _told(record)


def _told(record: dict[str, Any]) -> str:
    """A record in a few words."""
    facts = [f"{name}={value}" for name, value in record.get("clientmgr", {}).items()]
    return " ".join([str(record.get("message", "")), *facts[:NAMES_AT_MOST]])


@contextmanager
def quiet_terminal(settings: Settings, console: Console) -> Iterator[Terminal]:
    """Until the end of the `with`, the log goes to a file in DATA_DIR, and `console` shows the live line."""
    ensure_private_folder(settings.data_dir)
    file = settings.data_dir.resolve() / LOG_FILE
    ensure_own(file)
    terminal = Terminal(file, console)
    configure_logging(settings.model_copy(update={"log_format": "json"}), stream=cast(TextIO, terminal))
    try:
        with Live(terminal, console=console, refresh_per_second=REDRAWS_A_SECOND, transient=True):
            yield terminal
    finally:
        terminal.close()
        configure_logging(settings)
