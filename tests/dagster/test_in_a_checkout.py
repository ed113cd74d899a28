"""What whoever knows Dagster tries first, in a checkout: no server, no variable of ours, nothing started by itself."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from clientmgr.base.settings import Settings
from clientmgr.local.embedded.server import free_port
from clientmgr.local.processes.programs import dagster_programs
from tests.waiting import eventually

CHECKOUT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
STATUSES = """
from clientmgr_dagster.definitions import defs
repository = defs.get_repository_def()
both = [*repository.schedule_defs, *repository.sensor_defs]
print(len(both), *sorted({one.default_status.name for one in both}))
"""


def bare_environment(**more: str) -> dict[str, str]:
    """Without anything that Dagster or we would read."""
    ours = {name.upper() for name in Settings.model_fields}
    kept = {name: value for name, value in os.environ.items() if name not in ours and "DAGSTER" not in name}
    return kept | more


def run(*command: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable if command[0] == "python" else str(BIN / command[0]), *command[1:]],
        cwd=CHECKOUT,
        env=environment or bare_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


@pytest.mark.server
@pytest.mark.parametrize("command", ["dagster definitions validate", "dg check defs", "dg list defs"])
def test_dagsters_own_tools_load_all_definitions(command: str) -> None:
    done = run(*command.split())
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if command == "dg list defs":
        assert "orphan_candidates" in done.stdout


@pytest.mark.parametrize(("said", "status"), [("", "STOPPED"), ("running", "RUNNING")])
def test_schedules_and_sensors_run_by_themselves_only_where_that_is_said(said: str, status: str) -> None:
    environment = bare_environment(**({"DAGSTER_AUTOMATION": said} if said else {}))
    done = run("python", "-c", STATUSES, environment=environment)
    assert done.returncode == 0, done.stderr
    number, *found = done.stdout.split()
    assert int(number) >= 12
    assert found == [status], "all alike: each is declared with what automation.py says"


@pytest.mark.parametrize(("said", "told"), [("auto", "running"), ("running", "running"), ("stopped", "stopped")])
def test_our_own_programs_say_that_they_are_meant_to_act(settings: Settings, said: str, told: str) -> None:
    settings = settings.model_copy(update={"dagster_automation": said})
    environment = {**os.environ, **settings.environment()}
    programs = dagster_programs(settings, environment)
    assert {program.env["DAGSTER_AUTOMATION"] for program in programs} == {told}


@pytest.mark.server
def test_dagster_dev_comes_up_by_itself(tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [str(BIN / "dagster"), "dev", "--port", str(port)],
            cwd=CHECKOUT,
            env=bare_environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        query = "{ assetNodes { assetKey { path } } }"

        def loaded() -> bool:
            assert process.poll() is None, (tmp_path / "log").read_text()
            try:
                answer = httpx.post(f"http://127.0.0.1:{port}/graphql", json={"query": query}, timeout=30).json()
            except httpx.HTTPError:
                return False
            return ["tenant_schema"] in [node["assetKey"]["path"] for node in answer["data"]["assetNodes"]]

        eventually(loaded, "its UI knows our assets", within_s=120)
    finally:
        # All of them: SIGINT, its own way to end, may be ignored by whatever runs the tests, and then is by it too.
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
