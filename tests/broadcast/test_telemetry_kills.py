"""Durable writers are killed over and over while positions pour in, and not one is lost."""

from pathlib import Path

from clientmgr.settings import Settings
from tests.broadcast.stream import Stream, record, seconds_apart
from tests.streaming.processes import WorkerProcess
from tests.waiting import eventually

KILLS = 4
RECORDS_A_ROUND = 3000


def start(settings: Settings, folder: Path, number: int) -> WorkerProcess:
    return WorkerProcess(settings, folder / f"writer-{number}.log", "telemetry-writer")


def test_killed_writers_lose_nothing(stream: Stream, tmp_path: Path) -> None:
    settings = stream.settings.model_copy(update={"telemetry_batch_size": 50})
    crew = [start(settings, tmp_path, number) for number in range(2)]
    found_in_hand = 0
    try:
        for writer in crew:
            writer.wait_until_started()
        for kill in range(KILLS):
            stream.add(*seconds_apart(RECORDS_A_ROUND, f"device-{kill}"), record() | {"payload": f"malformed {kill}"})
            eventually(lambda: stream.pending() > 0, "somebody has entries in hand")
            crew[kill % 2].kill()
            found_in_hand += stream.pending() > 0
            crew[kill % 2] = start(settings, tmp_path, 2 + kill)
        eventually(lambda: stream.count("positions") == KILLS * RECORDS_A_ROUND, "every position is there")
        eventually(lambda: stream.pending() == 0, "everything is acknowledged")
        assert stream.count("rejected_records") == KILLS
        assert found_in_hand, "no kill hit a writer at work: the test proves nothing"
    finally:
        for writer in crew:
            writer.kill()
