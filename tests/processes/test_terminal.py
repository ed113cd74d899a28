"""What a person sees of `up` and `demo` on a terminal: what goes wrong, and one live line. The log has all of it."""

import io
import json
import os
import pty
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from clientmgr.base.logs import get_logger
from clientmgr.base.settings import load_settings
from clientmgr.local.processes.supervisor import forward_line
from clientmgr.local.processes.terminal import LOG_FILE, Terminal, quiet_terminal
from tests.cli.conftest import CLIENTMGR
from tests.process_table import running, with_descendants
from tests.waiting import eventually

log = get_logger("clientmgr.local.tests")


@pytest.fixture
def screen() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, height=30, color_system=None)


@pytest.fixture
def terminal(screen: Console, tmp_path: Path, restored_logging: None) -> Iterator[Terminal]:
    with quiet_terminal(load_settings(data_dir=tmp_path), screen) as terminal:
        yield terminal


def shown(screen: Console) -> str:
    file = screen.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_of_all_that_is_logged_a_person_is_told_what_goes_wrong(
    terminal: Terminal, screen: Console, tmp_path: Path
) -> None:
    log.warning("port is in use", port=3000)
    log.info("program started", name="workers")
    ours = {"ecs.version": "8.17.0", "log.level": "error", "log.logger": "streaming.writer", "process.name": "writer"}
    forward_line("workers", json.dumps({**ours, "message": "batch failed", "error.message": "no database"}))
    forward_line("dagster-code-server", "WARN NativeCodeLoader: Unable to load native-hadoop library")
    assert "port is in use" not in shown(screen), "the box comes first"
    terminal.show("the box")
    text = shown(screen)
    assert text.index("the box") < text.index("port is in use port=3000")
    assert "batch failed: no database (writer)" in text
    assert "NativeCodeLoader" not in text
    logged = (tmp_path / LOG_FILE).read_text()
    assert [json.loads(line)["message"] for line in logged.splitlines()] == [
        "port is in use",
        "program started",
        "batch failed",
        "WARN NativeCodeLoader: Unable to load native-hadoop library",
    ]


def test_one_line_tells_what_goes_on(terminal: Terminal, screen: Console) -> None:
    log.info("server started", name="PostgreSQL", port=5432)
    with screen.capture() as captured:
        screen.print(terminal)
    assert "starting, 0 s: server started name=PostgreSQL port=5432" in captured.get()
    terminal.show("the box")
    with screen.capture() as captured:
        screen.print(terminal)
    assert "up, 0 s: Ctrl-C stops everything" in captured.get()
    assert "the box" in shown(screen)


def test_the_log_is_for_its_owner_and_does_not_grow_for_ever(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clientmgr.local.processes.terminal.LOG_FILE_BYTES", 1000)
    for number in range(20):
        log.info("something happened", number=number)
    assert (tmp_path / LOG_FILE).stat().st_size < 2000
    assert (tmp_path / f"{LOG_FILE}.1").exists()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == stat.S_IRWXU


@pytest.mark.server
def test_on_a_terminal_ctrl_c_while_it_starts_leaves_neither_a_traceback_nor_a_process(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "DATA_DIR": str(tmp_path / "data"), "DAGSTER_PORT": "0", "TERM": "xterm"}
    process = subprocess.Popen(
        [CLIENTMGR, "demo"],
        cwd=tmp_path,
        env={**environment, "EMBEDDED_MINIMUM_FREE_MB": "0"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    log_file = tmp_path / "data" / LOG_FILE
    try:
        eventually(lambda: log_file.exists() and "server started" in log_file.read_text(), "a server runs")
        everything = with_descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as its terminal would
        written = read_all(ours)
        assert process.wait(timeout=120) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert not running(everything)
    assert "Traceback" not in written
    assert "starting," in written
    assert written.count("\n") < 20


def read_all(terminal: int) -> str:
    """Until nobody has it open any more."""
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode(errors="replace")
