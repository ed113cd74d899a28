"""As whom the embedded PostgreSQL runs: as a plain user, and as root, whom PostgreSQL itself refuses."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from clientmgr.local.children.guarded import RunAs
from clientmgr.local.embedded import postgres as postgres_module
from clientmgr.local.embedded.postgres import NOBODY, EmbeddedPostgres, run_as_for_postgres
from tests.embedded.conftest import SMALL
from tests.process_table import mentioning

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"), pytest.mark.server]

REPOSITORY = Path(__file__).parent.parent.parent
# Where the virtualenv's interpreter lies in a closed home folder, the system's own of the same version serves.
INTERPRETERS = [sys.executable, shutil.which(f"python3.{sys.version_info.minor}", path="/usr/local/bin:/usr/bin")]
PACKAGES = os.pathsep.join([str(REPOSITORY), sysconfig.get_path("purelib")])

START_AND_ASK = """
import os, sys
from pathlib import Path
import psycopg
from clientmgr.local.embedded.postgres import EmbeddedPostgres

server = EmbeddedPostgres(Path(sys.argv[1]))
server.start()
with psycopg.connect(server.url()) as connection:
    print(os.geteuid(), connection.execute("SELECT 40 + 2").fetchone()[0])
server.stop()
"""


def run_as_nobody(interpreter: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [interpreter, "-B", *arguments],
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": PACKAGES},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def interpreter() -> str:
    """A Python that a user without any rights can start, with our packages."""
    for candidate in filter(None, INTERPRETERS):
        try:
            if run_as_nobody(candidate, "-c", "import clientmgr.local.embedded.postgres").returncode == 0:
                return candidate
        except PermissionError:
            continue
    pytest.skip(f"user {NOBODY} can start none of {INTERPRETERS} with the packages of {REPOSITORY}")


@pytest.fixture
def folder_of_nobody() -> Iterator[Path]:
    """Not pytest's `tmp_path`, which is closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="clientmgr-nobody-"))
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def test_a_plain_user_can_run_it(interpreter: str, folder_of_nobody: Path) -> None:
    result = run_as_nobody(interpreter, "-c", START_AND_ASK, folder_of_nobody / "postgres")
    assert (result.stdout, result.stderr) == (f"{NOBODY} 42\n", "")
    assert not mentioning(folder_of_nobody)


def test_root_runs_it_in_a_user_namespace_so_that_its_files_stay_roots(postgres: EmbeddedPostgres) -> None:
    if run_as_for_postgres().user is not None:
        pytest.skip("this machine allows no user namespaces")
    postgres.start()
    assert postgres.data.stat().st_uid == os.geteuid()


def test_root_runs_it_as_nobody_where_there_are_no_user_namespaces(
    interpreter: str, folder_of_nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "run_as_for_postgres", lambda: RunAs(user=NOBODY))
    monkeypatch.setattr(sys, "executable", interpreter)
    server = EmbeddedPostgres(folder_of_nobody / "postgres", tuning=SMALL)
    for _ in ("a new one", "one that is there already"):
        server.start()
        try:
            psycopg.connect(server.url()).close()
            assert {process.uids().effective for process in mentioning(server.data)} == {NOBODY}
        finally:
            server.stop()
