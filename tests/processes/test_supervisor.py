"""A process that dies is started again: soon at first, later and later while it keeps dying, and named in the log."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest

from clientmgr.base.errors import EmbeddedServerError
from clientmgr.local.processes import supervisor as supervisor_module
from clientmgr.local.processes.supervisor import Program, Supervisor
from clientmgr.local.processes.system import running
from tests.processes.conftest import Records
from tests.waiting import eventually

PATIENT = "while :; do sleep 0.05; done"


@dataclass
class Clock:
    """Time that passes when the test says so."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Fragile:
    """Something to supervise whose fate the test decides."""

    name: str = "fragile"
    ended_with: int | None = None
    restarts: int = 0
    refuses: Exception | None = None
    restart_takes: Callable[[], None] = field(default=lambda: None)

    def exit_code(self) -> int | None:
        return self.ended_with

    def restart(self) -> None:
        self.restart_takes()
        if self.refuses is not None:
            raise self.refuses
        self.restarts += 1
        self.ended_with = None

    def stop(self) -> None:
        pass


def delays(records: Records) -> list[float]:
    return [record["clientmgr"]["restart_in_s"] for record in records() if record["message"] == "process died"]


def test_a_dead_process_is_restarted_after_a_while_and_named_in_the_log(logged: Records) -> None:
    clock, fragile = Clock(), Fragile()
    supervisor = Supervisor([fragile], clock)
    supervisor.look()
    fragile.ended_with = 3
    supervisor.look()
    clock.now = 0.9
    supervisor.look()
    assert fragile.restarts == 0
    clock.now = 1.0
    supervisor.look()
    assert fragile.restarts == 1
    died, restarted = logged()
    assert died["message"] == "process died"
    assert died["log.level"] == "error"
    assert died["clientmgr"] == {"name": "fragile", "cause": "exit code 3", "restart_in_s": 1.0}
    assert restarted["message"] == "process restarted"
    assert restarted["clientmgr"] == {"name": "fragile"}


def test_a_signal_is_told_as_a_signal(logged: Records) -> None:
    Supervisor([Fragile(ended_with=137)], Clock()).look()
    assert logged()[0]["clientmgr"]["cause"] == "signal 9"


def test_the_delay_grows_up_to_a_limit_while_it_keeps_dying(logged: Records) -> None:
    clock, fragile = Clock(), Fragile()
    supervisor = Supervisor([fragile], clock)
    for _ in range(8):
        fragile.ended_with = 1
        supervisor.look()
        clock.now += 60
        supervisor.look()
    assert delays(logged) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert fragile.restarts == 8


def test_one_that_ran_long_enough_starts_with_the_shortest_delay_again(logged: Records) -> None:
    clock, fragile = Clock(), Fragile()
    supervisor = Supervisor([fragile], clock)
    for runs_for in (1, 1, 61, 1):
        fragile.ended_with = 1
        supervisor.look()
        clock.now += 60
        supervisor.look()
        clock.now += runs_for
        supervisor.look()
    assert delays(logged) == [1, 2, 4, 1]


def test_a_restart_that_fails_is_tried_again_later(logged: Records) -> None:
    clock, fragile = Clock(), Fragile(ended_with=1, refuses=EmbeddedServerError("the disk is full"))
    fragile.restart_takes = lambda: setattr(clock, "now", clock.now + 30)
    supervisor = Supervisor([fragile], clock)
    supervisor.look()
    clock.now = 1.0
    supervisor.look()
    assert [record["clientmgr"]["cause"] for record in logged()] == ["exit code 1", "the disk is full"]
    fragile.refuses = None
    supervisor.look()
    assert fragile.restarts == 0, "the delay counts from the end of the failed attempt"
    clock.now += 2.0
    supervisor.look()
    assert fragile.restarts == 1


def test_the_others_are_left_alone() -> None:
    clock, fragile, sturdy = Clock(), Fragile(ended_with=1), Fragile("sturdy")
    supervisor = Supervisor([fragile, sturdy], clock)
    supervisor.look()
    clock.now = 10
    supervisor.look()
    assert (fragile.restarts, sturdy.restarts) == (1, 0)


def shell(name: str, script: str) -> Program:
    return Program(name, ["sh", "-c", script], os.environ)


def test_a_killed_program_runs_again(logged: Records, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_RESTART_DELAY_S", 0.05)
    program = shell("worker", f"echo $$ >> {tmp_path}/pids; {PATIENT}")
    stop = threading.Event()

    def pids() -> list[int]:
        file = tmp_path / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    with running([program]):
        watching = threading.Thread(target=Supervisor([program]).run, args=(stop,))
        watching.start()
        try:
            first = eventually(pids, "it runs")[0]
            os.kill(first, signal.SIGKILL)
            eventually(lambda: len(pids()) == 2, "it runs again")
        finally:
            stop.set()
            watching.join()
    died = next(record for record in logged() if record["message"] == "process died")
    assert died["clientmgr"]["name"] == "worker"
    assert died["clientmgr"]["cause"] == "signal 9"


def test_restarting_leaves_nothing_open() -> None:
    program = shell("short", "exit 0")

    def run_once() -> None:
        program.start()
        eventually(lambda: program.exit_code() is not None, "it ends")

    run_once()
    program.stop()
    before = psutil.Process().num_fds()
    for _ in range(10):
        run_once()
    program.stop()
    # What other threads of the process open meanwhile counts too. A restart that leaves something open leaves ten.
    assert psutil.Process().num_fds() < before + 10


def test_programs_start_in_order_and_stop_in_the_opposite_one(logged: Records) -> None:
    programs = [shell("first", PATIENT), shell("second", PATIENT)]
    with running(programs):
        assert [program.exit_code() for program in programs] == [None, None]
    assert [(record["message"], record["clientmgr"]["name"]) for record in logged()] == [
        ("program started", "first"),
        ("program started", "second"),
        ("program stopped", "second"),
        ("program stopped", "first"),
    ]
    assert [program.exit_code() for program in programs] == [128 + signal.SIGTERM] * 2


def test_all_programs_are_asked_to_stop_before_any_is_waited_for(tmp_path: Path) -> None:
    def waits_for(other: str, mine: str) -> Program:
        on_stop = f"touch {mine}; while [ ! -e {other} ]; do sleep 0.02; done; exit 0"
        return shell(mine, f"cd {tmp_path}; trap '{on_stop}' TERM; touch {mine}.ready; {PATIENT}")

    programs = [waits_for("b", "a"), waits_for("a", "b")]
    with running(programs):
        eventually(lambda: len(list(tmp_path.glob("*.ready"))) == 2, "both run")
    assert [program.exit_code() for program in programs] == [0, 0]


def test_what_a_program_writes_is_logged_under_its_name(logged: Records) -> None:
    program = Program("talker", [sys.executable, "-c", "print('one'); print('two')"], os.environ)
    with running([program]):
        eventually(lambda: program.exit_code() is not None, "it ends")
    told = [record["message"] for record in logged() if record["log.logger"] == "talker"]
    assert told == ["one", "two"]
