"""A guarded process ends when its owner does, however that ends, and takes with it what it started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest

from clientmgr.local.children.guarded import GuardedProcess
from tests.process_table import running, wait_until_gone, with_descendants
from tests.waiting import eventually

REPOSITORY = Path(__file__).parent.parent.parent

# Says that it is there, and then runs until it is told otherwise.
PATIENT = "echo ready; while :; do sleep 0.05; done"


class Shell(Protocol):
    def __call__(
        self, script: str, *, stop_signal: signal.Signals = signal.SIGTERM, grace_seconds: float = 20.0
    ) -> GuardedProcess: ...


@pytest.fixture
def shell() -> Iterator[Shell]:
    """Starts guarded scripts, and leaves none behind."""
    started: list[GuardedProcess] = []

    def start(
        script: str, *, stop_signal: signal.Signals = signal.SIGTERM, grace_seconds: float = 20.0
    ) -> GuardedProcess:
        started.append(
            GuardedProcess(
                "test",
                ["sh", "-c", script],
                output=subprocess.PIPE,
                stop_signal=stop_signal,
                grace_seconds=grace_seconds,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.stop()
        if process.output is not None:
            process.output.close()


def next_line(process: GuardedProcess) -> str:
    assert process.output is not None
    return process.output.readline().decode().strip()


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 128 + 9), ("kill -TERM $$", 128 + 15)]
)
def test_the_end_of_the_child_is_told_as_a_shell_tells_it(shell: Shell, script: str, code: int) -> None:
    process = shell(script)
    assert process.wait(timeout=60) == code
    assert process.exit_code() == code
    assert process.stop() == code


def test_what_the_child_writes_can_be_read(shell: Shell) -> None:
    process = shell("echo out; echo err >&2; exit 3")
    assert process.read_output() == "out\nerr\n"
    assert process.stop() == 3


def test_a_command_that_is_not_there_is_told_in_words() -> None:
    process = GuardedProcess("test", ["/no/such/command"], output=subprocess.PIPE)
    assert process.read_output() == "cannot run /no/such/command: No such file or directory\n"
    assert process.stop() == 127


def test_it_runs_until_it_is_stopped(shell: Shell) -> None:
    process = shell(PATIENT)
    assert next_line(process) == "ready"
    assert process.exit_code() is None
    assert process.stop() == 128 + signal.SIGTERM


def test_the_child_is_asked_by_the_signal_that_it_understands(shell: Shell) -> None:
    process = shell(f"trap 'echo interrupted; exit 5' INT; {PATIENT}", stop_signal=signal.SIGINT)
    assert next_line(process) == "ready"
    assert process.stop() == 5
    assert process.read_output() == "interrupted\n"


def test_a_child_that_does_not_stop_is_killed_after_its_grace_period(shell: Shell) -> None:
    process = shell(f"trap '' TERM; {PATIENT}", grace_seconds=0.3)
    assert next_line(process) == "ready"
    started = time.monotonic()
    assert process.stop() == 128 + signal.SIGKILL
    assert time.monotonic() - started >= 0.3


def test_what_the_child_leaves_in_its_group_is_killed_with_it(shell: Shell, tmp_path: Path) -> None:
    process = shell(f"sleep 300 & echo $!; while [ ! -e {tmp_path}/end ]; do sleep 0.05; done; exit 4")
    left_behind = psutil.Process(int(next_line(process)))
    (tmp_path / "end").touch()
    assert process.wait(timeout=60) == 4
    wait_until_gone([left_behind])


def test_what_the_child_started_is_killed_when_it_is_stopped(shell: Shell) -> None:
    process = shell(f"sleep 300 & echo $!; {PATIENT}")
    started = psutil.Process(int(next_line(process)))
    assert next_line(process) == "ready"
    assert running([started])
    process.stop()
    wait_until_gone([started])


def test_signals_for_the_whole_terminal_are_left_to_the_owner(shell: Shell) -> None:
    process = shell(f"trap 'exit 5' TERM; {PATIENT}")
    assert next_line(process) == "ready"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(process.pid, number)
    assert process.stop() == 5, "the guardian lived to see its child's end"


def test_it_is_in_another_process_group_than_its_owner(shell: Shell) -> None:
    process = shell("echo ready; exec sleep 300")
    assert next_line(process) == "ready"
    groups = {os.getpgid(started.pid) for started in with_descendants(process.pid)}
    assert os.getpgid(0) not in groups


OWNER = """
import subprocess, sys, signal
from clientmgr.local.children.guarded import GuardedProcess
process = GuardedProcess("test", ["sh", "-c", sys.argv[1]], output=subprocess.PIPE, grace_seconds=1)
print(process.pid, process.output.readline().decode(), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("script", [PATIENT, f"trap '' TERM; {PATIENT}"], ids=["obedient", "stubborn"])
def test_nothing_outlives_a_killed_owner(script: str) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, script], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout as output:
        assert output.readline().split()[1] == "ready"
    everything = with_descendants(owner.pid)
    assert len(everything) >= 3
    owner.kill()
    owner.wait()
    wait_until_gone(everything)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child whose parent was killed")
def test_the_child_is_asked_to_stop_when_its_guardian_is_killed(shell: Shell) -> None:
    process = shell(f"trap 'echo interrupted; exit' INT; {PATIENT}", stop_signal=signal.SIGINT)
    assert next_line(process) == "ready"
    everything = with_descendants(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(timeout=60) == 128 + signal.SIGKILL
    assert next_line(process) == "interrupted"
    wait_until_gone(everything)


def test_starting_and_stopping_leaves_nothing_open(shell: Shell) -> None:
    def run_once() -> None:
        process = shell("exit 0")
        process.read_output()
        process.stop()

    run_once()
    before = psutil.Process().num_fds()
    for _ in range(10):
        run_once()
    # What other threads of the process open meanwhile counts too. A run that leaves something open leaves ten.
    assert psutil.Process().num_fds() < before + 10


def test_asking_for_a_stop_does_not_wait_for_it(shell: Shell) -> None:
    process = shell(f"trap 'sleep 0.3; exit 6' TERM; {PATIENT}")
    assert next_line(process) == "ready"
    process.request_stop()
    assert process.exit_code() is None
    assert eventually(process.exit_code, "it stops") == 6
    assert process.stop() == 6
