"""The embedded servers of one folder: one owner at a time, and nothing left that blocks the next, however one ends."""

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis as client_library

from clientmgr.base.data_folder import attach, lock_folder, with_audit_key
from clientmgr.base.errors import EmbeddedServerError, SettingsError
from clientmgr.base.settings import Settings, load_settings
from clientmgr.local.embedded.stack import EmbeddedStack
from tests.embedded.conftest import SMALL
from tests.keys import TEST_KEY
from tests.process_table import mentioning, running, wait_until_gone, with_descendants

REPOSITORY = Path(__file__).parent.parent.parent


class Owner:
    """Another process that runs a stack in the folder."""

    def __init__(self, data_dir: Path, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.embedded.run_stack"],
            cwd=REPOSITORY,
            env={**os.environ, "DATA_DIR": str(data_dir), "EMBEDDED_MINIMUM_FREE_MB": "0", **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        with self.process.stdout as output:
            urls = json.loads(output.readline())
        self.database_url: str = urls["database_url"]
        self.redis_url: str = urls["redis_url"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start_owner() -> Iterator[Callable[..., Owner]]:
    owners: list[Owner] = []

    def start(data_dir: Path, **environment: str) -> Owner:
        owners.append(Owner(data_dir, **environment))
        return owners[-1]

    yield start
    for owner in owners:
        owner.kill()


def settings_in(data_dir: Path, **more: object) -> Settings:
    return load_settings(data_dir=data_dir, embedded_minimum_free_mb=0, **more)


def put_something(database_url: str, redis_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    with client_library.Redis.from_url(redis_url) as client:
        client.set("kept", "42")


def expect_something(database_url: str, redis_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchall() == [(42,)]
    with client_library.Redis.from_url(redis_url) as client:
        assert client.get("kept") == b"42"


def test_it_starts_what_no_url_is_configured_for(data_dir: Path) -> None:
    with EmbeddedStack(settings_in(data_dir, database_url="postgresql://elsewhere/db")) as stack:
        assert [server.name for server in stack.servers] == ["Redis"]
        assert stack.settings.database_url == "postgresql://elsewhere/db"
    with EmbeddedStack(settings_in(data_dir, redis_url="redis://elsewhere"), tuning=SMALL) as stack:
        assert [server.name for server in stack.servers] == ["PostgreSQL"]
        assert stack.settings.redis_url == "redis://elsewhere"
    assert not mentioning(data_dir)


def test_it_starts_nothing_where_both_urls_are_configured(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, database_url="postgresql://elsewhere/db", redis_url="redis://elsewhere")
    with EmbeddedStack(settings) as stack:
        assert stack.servers == []
    assert not (tmp_path / "lock").exists()


def test_another_process_finds_the_running_servers(data_dir: Path) -> None:
    with EmbeddedStack(settings_in(data_dir), tuning=SMALL) as stack:
        assert attach(settings_in(data_dir), as_owner=True) == stack.settings
        assert attach(settings_in(data_dir)) == stack.settings.model_copy(update={"database_url": ""})
        handed = settings_in(data_dir, database_reader_url=stack.settings.database_reader_url)
        assert attach(handed).database_writer_url == "", "who was handed a login finds no other"
        expect_no_one_else_can_read(data_dir / "running.json")
    assert not (data_dir / "running.json").exists()


def test_where_nothing_runs_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"DATABASE_URL: not set, .* Start one with `clientmgr up`"):
        attach(settings_in(tmp_path))


def test_a_second_stack_in_the_folder_is_told_who_holds_it(data_dir: Path, start_owner: Callable[..., Owner]) -> None:
    owner = start_owner(data_dir)
    with pytest.raises(EmbeddedServerError) as caught, EmbeddedStack(settings_in(data_dir)):
        pass
    assert f"{data_dir} is in use by another clientmgr (process {owner.process.pid})" in str(caught.value)
    with psycopg.connect(owner.database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_holder_is_known_before_its_servers_run(tmp_path: Path) -> None:
    with (
        lock_folder(tmp_path),
        pytest.raises(EmbeddedServerError, match=rf"\(process {os.getpid()}\)"),
    ):
        lock_folder(tmp_path)


def test_those_who_only_look_do_not_take_each_other_for_an_owner(tmp_path: Path) -> None:
    lock_folder(tmp_path).close()
    (tmp_path / "running.json").write_text('{"database_url": "postgresql://of/a/dead/run"}')
    settings = settings_in(tmp_path, audit_hash_key=TEST_KEY)
    found: list[Settings] = []

    def look() -> None:
        for _ in range(500):
            with contextlib.suppress(SettingsError):
                found.append(attach(settings))

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for looker in lookers:
        looker.start()
    for looker in lookers:
        looker.join()
    assert found == []


def test_an_owner_is_not_kept_out_by_somebody_who_only_looks(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, audit_hash_key=TEST_KEY)
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            with contextlib.suppress(SettingsError):
                attach(settings)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for _ in range(200):
            lock_folder(tmp_path).close()
    finally:
        ended.set()
        looker.join()


def test_nothing_outlives_a_killed_owner_and_its_data_stays(data_dir: Path, start_owner: Callable[..., Owner]) -> None:
    owner = start_owner(data_dir)
    put_something(owner.database_url, owner.redis_url)
    everything = with_descendants(owner.process.pid)
    assert len(everything) > 4, "two guardians and two servers at least"
    owner.kill()
    wait_until_gone(everything)
    assert not mentioning(data_dir)
    with EmbeddedStack(settings_in(data_dir), tuning=SMALL) as stack:
        expect_something(stack.settings.database_url, stack.settings.redis_url)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child whose parent was killed")
def test_nothing_outlives_an_owner_that_is_killed_with_its_guardians(
    data_dir: Path, start_owner: Callable[..., Owner]
) -> None:
    owner = start_owner(data_dir)
    put_something(owner.database_url, owner.redis_url)
    # A client that does not leave must not hold up the end.
    with psycopg.connect(owner.database_url, autocommit=True) as staying:
        everything = with_descendants(owner.process.pid)
        guardians = mentioning("guardian.py", among=everything)
        assert len(guardians) == 2
        for process in (owner.process, *guardians):
            process.kill()
        owner.process.wait()
        wait_until_gone(everything)
        staying.close()
    assert not mentioning(data_dir)
    with EmbeddedStack(settings_in(data_dir), tuning=SMALL) as stack:
        expect_something(stack.settings.database_url, stack.settings.redis_url)


def test_servers_that_nobody_watches_any_more_are_ended_by_the_next_start(
    data_dir: Path, start_owner: Callable[..., Owner]
) -> None:
    owner = start_owner(data_dir)
    put_something(owner.database_url, owner.redis_url)
    everything = with_descendants(owner.process.pid)
    servers = [data_dir / "postgres" / "data" / "postmaster.pid", data_dir / "redis" / "redis.pid"]
    pids = [int(file.read_text().split()[0]) for file in servers]
    # Stopped, they can't react to the end of their guardians: as on a system that does not tell them.
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for process in mentioning("guardian.py", among=everything):
        process.kill()
    owner.kill()
    ports = {"postgres_port": _port(owner.database_url), "redis_port": _port(owner.redis_url)}

    def let_them_go_on() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    continuing = threading.Timer(0.5, let_them_go_on)
    continuing.start()
    try:
        # On the very ports that the left-over servers still hold.
        with EmbeddedStack(settings_in(data_dir, **ports), tuning=SMALL) as stack:
            expect_something(stack.settings.database_url, stack.settings.redis_url)
            assert not running(everything)
    finally:
        continuing.join()


def test_the_audit_key_is_made_once_and_kept_to_ourselves(tmp_path: Path) -> None:
    made: list[str] = []
    barrier = threading.Barrier(8)

    def make() -> None:
        barrier.wait()
        made.append(with_audit_key(settings_in(tmp_path)).audit_hash_key.get_secret_value())

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert set(made) == {(tmp_path / "audit_hash_key").read_text()}
    assert len(made[0]) == 64
    expect_no_one_else_can_read(tmp_path / "audit_hash_key")
    assert [file.name for file in tmp_path.iterdir()] == ["audit_hash_key"]


def test_a_configured_audit_key_is_used_and_not_written_down(tmp_path: Path) -> None:
    settings = with_audit_key(settings_in(tmp_path, audit_hash_key=TEST_KEY))
    assert settings.audit_hash_key.get_secret_value() == TEST_KEY
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_not_be_made_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with (
        pytest.raises(EmbeddedServerError, match=r"\(DATA_DIR\) can't be used: .*Not a directory"),
        EmbeddedStack(settings_in(tmp_path / "file" / "data")),
    ):
        pass


def expect_no_one_else_can_read(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def _port(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])
