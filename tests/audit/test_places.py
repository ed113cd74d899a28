"""Places for anchors: what is written is there, in order, whoever else writes and whoever is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from clientmgr.audit.anchoring import PlaceState, anchor_log, read_last_anchors
from clientmgr.audit.anchors import Anchor, AnchorForgedError, Head, opened, signed
from clientmgr.audit.log import PLATFORM, AuditEntry, AuditLogger
from clientmgr.audit.places.buckets import S3Place
from clientmgr.audit.places.configured import anchor_places
from clientmgr.audit.places.file import FilePlace
from clientmgr.audit.places.interface import AnchoredMeanwhileError, AnchorPlace, PlaceUnavailableError
from clientmgr.audit.places.redis import RedisPlace
from clientmgr.audit.places.webhook import WebhookPlace
from clientmgr.audit.verification import verify_log
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import SettingsError
from clientmgr.base.settings import Settings, load_settings
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.local.embedded.server import free_port
from clientmgr.local.standins.dynamodb import CREDENTIALS
from tests.keys import TEST_KEY

LOGGER = AuditLogger(TEST_KEY.encode())


def line(number: int, seq: int = 1) -> bytes:
    return signed(Anchor(number, datetime.now(UTC), {0: Head(seq, "ab" * 16), 7: Head(2, "cd" * 16)}), LOGGER)


class Receiver(HTTPServer):
    """Keeps what is posted to it and, if it is made so, gives the last of it back."""

    def __init__(self, *, gives_back: bool) -> None:
        self.lines: list[bytes] = []
        self.gives_back = gives_back
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/secret"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:  # http.server's name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        taken = self.server.gives_back and body in self.server.lines
        if not taken:
            self.server.lines.append(body)
        self._answer(409 if taken else 204)

    def do_GET(self) -> None:  # http.server's name
        if not self.server.gives_back:
            self._answer(405)
        elif self.server.lines:
            self._answer(200, self.server.lines[-1])
        else:
            self._answer(404)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # http.server's name


@pytest.fixture
def receiver() -> Iterator[Callable[..., Receiver]]:
    servers: list[Receiver] = []

    def start(*, gives_back: bool) -> Receiver:
        server = Receiver(gives_back=gives_back)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=s3_url).create_bucket(Bucket="anchors")
    return f"s3://anchors/production?endpoint={s3_url}"


@pytest.fixture(params=["file", "redis", "bucket", "webhook"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> AnchorPlace:
    match request.param:
        case "file":
            return FilePlace(tmp_path / "anchors.jsonl")
        case "redis":
            server: EmbeddedRedis = request.getfixturevalue("redis_server")
            return RedisPlace(f"{server.url}#anchors-{tmp_path.name}")
        case "bucket":
            return S3Place(request.getfixturevalue("bucket"))
        case _:
            start: Callable[..., Receiver] = request.getfixturevalue("receiver")
            return WebhookPlace(start(gives_back=True).url)


@pytest.mark.server
def test_a_place_gives_back_what_was_written_last(place: AnchorPlace) -> None:
    assert place.read_last() is None
    for number in (1, 2, 3):
        place.write(number, written := line(number))
        assert place.read_last() == written
    with pytest.raises(AnchoredMeanwhileError):
        place.write(3, written)
    assert "secret" not in place.name


@pytest.mark.parametrize(
    "make",
    [
        lambda port, _: RedisPlace(f"redis://:hidden@127.0.0.1:{port}/0"),
        lambda port, _: WebhookPlace(f"http://127.0.0.1:{port}/hidden"),
        lambda port, _: S3Place(f"s3://bucket/hidden?endpoint=http://127.0.0.1:{port}"),
        lambda _, folder: FilePlace(folder / "a-file" / "hidden.jsonl"),
    ],
    ids=["redis", "webhook", "bucket", "file"],
)
def test_a_place_that_is_not_there_says_so(
    make: Callable[[int, Path], AnchorPlace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "a-file").write_text("")
    place = make(free_port(), tmp_path)
    with pytest.raises(PlaceUnavailableError):
        place.read_last()
    with pytest.raises(PlaceUnavailableError):
        place.write(1, b"{}")


def test_a_webhook_that_answers_no_get_is_written_to_and_not_compared_with(
    database: Database, receiver: Callable[..., Receiver]
) -> None:
    server = receiver(gives_back=False)
    place = WebhookPlace(server.url)
    assert [result.outcome for result in anchor_log(database, LOGGER, [place], actor="test")] == ["anchored"]
    assert opened(server.lines[0], LOGGER).heads[PLATFORM].seq == 1
    verdict = verify_log(database, LOGGER, [place])
    assert (verdict.state, verdict.examined.anchors, verdict.examined.not_readable) == ("intact", 0, [place.name])


@pytest.mark.parametrize(
    "forge",
    [
        lambda text: text.replace(b'"7":[2,', b'"7":[1,'),
        lambda text: text.replace(b'"number":1,', b'"number":2,'),
        lambda text: text.replace(b"cdcd", b"cdce"),
        lambda text: text[:-20],
        lambda _: b"not even JSON",
        lambda _: b"{}",
    ],
    ids=["a row less", "another number", "another hash", "cut short", "no JSON", "nothing in it"],
)
def test_an_anchor_that_somebody_changed_is_not_believed(forge: Callable[[bytes], bytes]) -> None:
    assert opened(line(1), LOGGER).number == 1
    with pytest.raises(AnchorForgedError):
        opened(forge(line(1)), LOGGER)


def test_an_anchor_signed_with_another_key_is_named_as_such() -> None:
    with pytest.raises(AnchorForgedError, match="another key"):
        opened(line(1), AuditLogger(b"another"))


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    FilePlace(tmp_path / "new" / "anchors.jsonl").write(1, line(1))
    assert (tmp_path / "new" / "anchors.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("half", [1, 50, -1])
def test_a_half_written_line_is_passed_over_and_replaced(tmp_path: Path, half: int) -> None:
    file = tmp_path / "anchors.jsonl"
    place = FilePlace(file)
    place.write(1, first := line(1))
    with file.open("ab") as output:
        output.write(line(2)[:half])
    assert place.read_last() == first
    place.write(2, second := line(2))
    assert file.read_bytes() == first + b"\n" + second + b"\n"


def test_a_large_file_is_moved_aside_and_its_last_anchor_stays(tmp_path: Path) -> None:
    file = tmp_path / "anchors.jsonl"
    place = FilePlace(file, rotated_at_bytes=2000)
    for number in range(1, 40):
        place.write(number, line(number))
        last = place.read_last()
        assert last is not None
        assert opened(last, LOGGER).number == number
    assert file.stat().st_size < 3000
    assert (tmp_path / "anchors.jsonl.1").exists()


def test_many_processes_and_threads_write_one_after_the_other(tmp_path: Path) -> None:
    def write(_: int) -> int:
        place, mine = FilePlace(tmp_path / "anchors.jsonl"), 0
        while mine < 10:
            last = place.read_last()
            number = 1 if last is None else opened(last, LOGGER).number + 1
            try:
                place.write(number, line(number))
                mine += 1
            except AnchoredMeanwhileError:
                continue
        return mine

    with ThreadPoolExecutor(4) as executor:
        assert sum(executor.map(write, range(4))) == 40
    lines = (tmp_path / "anchors.jsonl").read_bytes().splitlines()
    assert [opened(one, LOGGER).number for one in lines] == list(range(1, 41))


ANCHORER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from clientmgr.audit.anchors import Anchor, Head, opened, signed
from clientmgr.audit.log import AuditLogger
from clientmgr.audit.places.file import FilePlace
from tests.keys import TEST_KEY

logger, place = AuditLogger(TEST_KEY.encode()), FilePlace(Path(sys.argv[1]))
heads = {chain: Head(chain + 1, "ab" * 16) for chain in range(40_000)}
while True:
    last = place.read_last()
    number = 1 if last is None else opened(last, logger).number + 1
    place.write(number, signed(Anchor(number, datetime.now(UTC), heads), logger))
    print(number, flush=True)
"""


@pytest.mark.server
def test_an_anchorer_that_is_killed_in_the_middle_of_a_write_breaks_nothing(tmp_path: Path) -> None:
    file = tmp_path / "anchors.jsonl"
    place, acknowledged, halves = FilePlace(file), 0, 0
    for _ in range(20):
        child = subprocess.Popen(
            [sys.executable, "-c", ANCHORER, str(file)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "."}
        )
        assert child.stdout is not None
        assert int(child.stdout.readline()) > acknowledged, "it goes on where the killed one ended"
        size = file.stat().st_size
        deadline = time.monotonic() + 60
        while file.stat().st_size == size:  # without a pause: a write is over in a moment
            assert time.monotonic() < deadline, "it wrote nothing more"
        child.send_signal(signal.SIGKILL)
        told = child.communicate()[0].split()
        acknowledged = max([acknowledged, *map(int, told)])
        halves += not file.read_bytes().endswith(b"\n")
        last = place.read_last()
        assert last is not None
        assert opened(last, LOGGER).number >= acknowledged, "what was acknowledged is there"
        if halves:
            break
    assert halves, "no kill hit the middle of a write"
    assert last is not None
    number = opened(last, LOGGER).number + 1
    place.write(number, after := line(number))
    assert place.read_last() == after


def test_a_log_that_is_written_and_anchored_all_the_while_verifies_clean(database: Database, tmp_path: Path) -> None:
    places = [FilePlace(tmp_path / "one.jsonl"), FilePlace(tmp_path / "two.jsonl")]
    enough = threading.Event()

    def append(_: int) -> None:
        with database.connect(Role.WRITER, autocommit=True) as connection:
            while not enough.is_set():
                with connection.transaction():
                    LOGGER.append(connection, [AuditEntry(chain, "ann", "test", "done") for chain in range(3)])

    def anchor(_: int) -> int:
        written = 0
        while not enough.is_set():
            written += sum(result.number is not None for result in anchor_log(database, LOGGER, places, actor="test"))
        return written

    with ThreadPoolExecutor(4) as executor:
        appending = [executor.submit(append, number) for number in range(2)]
        anchoring = [executor.submit(anchor, number) for number in range(2)]
        try:
            verdicts = [verify_log(database, LOGGER, places) for _ in range(10)]
        finally:
            enough.set()
    for task in appending:
        task.result()
    assert [verdict.first for verdict in verdicts if verdict.findings] == []
    assert sum(task.result() for task in anchoring) > 10
    assert verdicts[-1].examined.anchors == 2


def test_rows_that_are_anchored_while_a_verification_begins_are_not_missed(database: Database, tmp_path: Path) -> None:
    class Busy(FilePlace):
        """Somebody writes and anchors rows at the very moment at which the place is asked."""

        def read_last(self) -> bytes | None:
            with database.connect(Role.WRITER) as connection:
                LOGGER.append(connection, [AuditEntry(PLATFORM, "ann", "test", "done")])
            anchor_log(database, LOGGER, [FilePlace(tmp_path / "anchors.jsonl")], actor="test")
            return super().read_last()

    verdict = verify_log(database, LOGGER, [Busy(tmp_path / "anchors.jsonl")])
    assert (verdict.first, verdict.examined.anchors) == ([], 1)


def test_nothing_is_written_where_nothing_changed(database: Database, tmp_path: Path) -> None:
    place = FilePlace(tmp_path / "anchors.jsonl")
    assert [result.number for result in anchor_log(database, LOGGER, [place], actor="test")] == [2]
    assert [result.outcome for result in anchor_log(database, LOGGER, [place], actor="test")] == ["unchanged"]
    (last,) = read_last_anchors([place], LOGGER)
    assert (last.state, last.anchor is not None and last.anchor.number) == (PlaceState.READ, 2)


def test_a_kill_between_the_first_anchor_and_its_row_in_the_log_is_made_good(
    database: Database, tmp_path: Path
) -> None:
    place = FilePlace(tmp_path / "anchors.jsonl")
    with database.connect(Role.READER) as connection:
        row = connection.execute("SELECT seq, encode(hash, 'hex') FROM clientmgr.audit_heads").fetchone()
    assert row is not None
    place.write(1, signed(Anchor(1, datetime.now(UTC), {PLATFORM: Head(row[0], row[1][:32])}), LOGGER))
    assert verify_log(database, LOGGER, [place]).state == "intact"
    anchor_log(database, LOGGER, [place], actor="test")
    (tmp_path / "anchors.jsonl").unlink()
    assert verify_log(database, LOGGER, [place]).state == "damaged", "by now the log knows of the place"


def test_a_second_place_takes_over_where_one_is_away(database: Database, tmp_path: Path) -> None:
    here, away = FilePlace(tmp_path / "here.jsonl"), RedisPlace(f"redis://127.0.0.1:{free_port()}")
    outcomes = {result.place: result.is_kept for result in anchor_log(database, LOGGER, [away, here], actor="test")}
    assert outcomes == {here.name: True, away.name: False}


def test_whoever_sets_nothing_has_a_file_in_the_data_folder(
    database: Database, settings_for: Callable[[Database], Settings], tmp_path: Path
) -> None:
    (place,) = anchor_places(settings_for(database))
    anchor_log(database, LOGGER, [place], actor="test")
    (file,) = (tmp_path / "audit_anchors").iterdir()
    assert file.name == f"{database.url.rpartition('/')[2]}.jsonl"


def test_the_setting_names_places_by_comma_and_refuses_others() -> None:
    settings = load_settings(audit_anchors="file:/a/b.jsonl, redis://:pw@h/0,s3://bucket/x,https://h/hook")
    kinds = [type(place).__name__ for place in anchor_places(settings)]
    assert kinds == ["FilePlace", "RedisPlace", "S3Place", "WebhookPlace"]
    assert not [place.name for place in anchor_places(settings) if "pw" in place.name or "hook" in place.name]
    for wrong in ("ftp://x", "/a/path", "file:relative", "gs://bucket"):
        with pytest.raises(SettingsError, match="AUDIT_ANCHORS: expected places"):
            load_settings(audit_anchors=wrong)
