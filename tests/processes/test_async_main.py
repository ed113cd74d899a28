"""`run_until_stopped`, in processes of its own: what a signal does to it, and a second one."""

import contextlib
import gc
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from clientmgr.base.async_main import COLLECTED_AFTER, run_until_stopped

PROGRAM = """
import asyncio, sys, time
from clientmgr.base.async_main import run_until_stopped

async def main(stop):
    print("running", flush=True)
    {body}
    return 5

sys.exit(run_until_stopped(main, use_uvloop={use_uvloop}))
"""
FINISHES = "await stop.wait()"
TAKES_ITS_TIME = "await stop.wait(); print('asked', flush=True); await asyncio.sleep(60)"
IS_STUCK = "time.sleep(60)"


@contextlib.contextmanager
def running(body: str, *, use_uvloop: bool = True) -> Iterator[subprocess.Popen[str]]:
    code = PROGRAM.format(body=body, use_uvloop=use_uvloop)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("use_uvloop", [True, False])
def test_a_signal_lets_it_finish_and_its_exit_code_counts(number: signal.Signals, use_uvloop: bool) -> None:
    with running(FINISHES, use_uvloop=use_uvloop) as process:
        process.send_signal(number)
        assert process.wait(20) == 5


def test_a_second_signal_ends_one_that_takes_its_time() -> None:
    with running(TAKES_ITS_TIME) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM


def test_signals_end_one_whose_event_loop_is_stuck() -> None:
    with running(IS_STUCK) as process:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Two signals that are sent at once may arrive as one.
            assert process.wait(0.5) is None
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT


def test_messages_are_not_searched_for_cycles_all_the_time_and_afterwards_as_before() -> None:
    async def main(_stop: object) -> None:
        assert gc.get_threshold()[0] == COLLECTED_AFTER

    before = gc.get_threshold()
    assert run_until_stopped(main) == 0
    assert gc.get_threshold() == before


def test_it_leaves_the_signals_as_they_were() -> None:
    async def main(_stop: object) -> None:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    assert run_until_stopped(main) == 0
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
