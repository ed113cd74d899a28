"""The units: as systemd itself sees them where it is, and by our own strict reading everywhere."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from clientmgr.base.settings import Settings, load_settings
from clientmgr.contracts import daemons
from clientmgr.local.processes.programs import ROLLBACK_S, own_commands
from tests.cli.calling import Cli
from tests.cli.conftest import CLIENTMGR
from tests.deploy.files import ENVIRONMENT_FILES, ROOT, SERVICES, SYSTEMD, UNITS, environment_of, parse_unit
from tests.docs.links import anchors_of

INSTALLED = "/opt/client-manager/.venv/bin/clientmgr"
INSTANCES = {
    "clientmgr@.service": tuple(one.name for one in daemons.started() if one.arguments == ("run", one.name)),
    "clientmgr-device-mapper@.service": ("batch", "tx"),
}
HARDENED = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "RestrictNamespaces": "yes",
    "SystemCallArchitectures": "native",
    "UMask": "0077",
}
MOST_EXPOSED = 2.0
"""Of 10, as `systemd-analyze security` counts."""


def instances(unit: Path) -> list[str]:
    """The names that a unit is started under."""
    stem, at, _ = unit.name.partition("@")
    return [f"{stem}@{instance}.service" for instance in INSTANCES[unit.name]] if at else [unit.name]


def command_of(unit: Path) -> list[str]:
    (command,) = parse_unit(unit.read_text())["Service"]["ExecStart"]
    return command.split()


@pytest.fixture
def verifiable(tmp_path: Path) -> list[Path]:
    """All units under the names they are started under, with a command that there is on this machine."""
    copies = []
    for unit in UNITS:
        for name in instances(unit):
            copy = tmp_path / name
            copy.write_text(unit.read_text().replace(INSTALLED, str(CLIENTMGR)))
            copies.append(copy)
    return copies


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_has_nothing_to_say_about_them(verifiable: list[Path]) -> None:
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *verifiable], capture_output=True, text=True, check=False
    )
    ours = [line for line in result.stderr.splitlines() if "clientmgr" in line]
    assert (result.returncode, ours) == (0, [])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_finds_them_hardened(verifiable: list[Path]) -> None:
    for unit in verifiable:
        if unit.suffix == ".service":
            result = subprocess.run(
                ["systemd-analyze", "security", "--offline=true", unit], capture_output=True, text=True, check=False
            )
            exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", result.stdout)
            assert exposure is not None, result.stderr
            assert float(exposure[1]) <= MOST_EXPOSED, unit.name


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_a_unit_is_well_formed_and_says_where_it_is_documented(unit: Path) -> None:
    sections = parse_unit(unit.read_text())
    expected = {"Unit", "Install"} | ({"Service"} if unit.suffix == ".service" else set())
    assert sections.keys() == expected
    (documentation,) = sections["Unit"]["Documentation"]
    for instance in INSTANCES.get(unit.name, ("",)):
        path, _, anchor = documentation.removeprefix("file:/opt/client-manager/").partition("#")
        page = ROOT / path.replace("%i", instance)
        assert page.exists()
        assert not anchor or anchor in anchors_of(page)


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: str(unit.name))
def test_a_service_runs_as_nobody_special_and_sees_little(unit: Path) -> None:
    service = parse_unit(unit.read_text())["Service"]
    assert {name: service.get(name) for name in HARDENED} == {name: [value] for name, value in HARDENED.items()}
    assert service["User"] == ["clientmgr"]


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: str(unit.name))
def test_a_service_is_a_command_that_there_is(unit: Path) -> None:
    program, *arguments = command_of(unit)
    assert program == INSTALLED
    for instance in INSTANCES.get(unit.name, ("",)):
        words = [argument.replace("%i", instance) for argument in arguments]
        # Asked for its help, it checks everything else on its command line.
        assert "Usage: clientmgr" in Cli({}).ok(*words, "--help").out


def test_a_daemon_has_the_whole_time_to_drain_before_systemd_kills_it() -> None:
    longest = load_settings().shutdown_timeout_s + ROLLBACK_S
    assert float(environment_of(SYSTEMD / "env" / "client-manager.env")["SHUTDOWN_TIMEOUT_S"]) + ROLLBACK_S <= longest
    for unit in SERVICES:
        service = parse_unit(unit.read_text())["Service"]
        if service["Type"] != ["oneshot"]:
            assert service["KillSignal"] == ["SIGTERM"]
            assert float(service["TimeoutStopSec"][0]) > longest, unit.name


def test_whatever_up_runs_has_a_unit_and_a_port_for_its_metrics() -> None:
    """By its name, a process finds its port in the file that its unit reads."""
    ports = {path.stem: environment_of(path).get("METRICS_PORT") for path in ENVIRONMENT_FILES}
    started = {tuple(command_of(unit)[1:]) for unit in SERVICES if "@" not in unit.name}
    started |= {
        tuple(word.replace("%i", instance) for word in command_of(SYSTEMD / unit)[1:])
        for unit, some in INSTANCES.items()
        for instance in some
    }
    for command in own_commands():
        assert any(words[: len(command.arguments)] == command.arguments for words in started), command.name
        assert ports.get(command.name), f"deploy/systemd/env/{command.name}.env"
    used = [port for port in ports.values() if port]
    assert len(set(used)) == len(used)


def test_the_instructions_enable_every_unit_under_every_name() -> None:
    instructions = (ROOT / "docs" / "operating.md").read_text().replace("\\\n", " ")
    (enabled,) = re.findall(r"^systemctl enable (.+)$", instructions, re.MULTILINE)
    names: set[str] = set()
    for word in enabled.split():
        stem, brace, some = word.partition("{")
        names |= {f"{stem}{one}" for one in some.rstrip("}").split(",")} if brace else {stem}
    # The bridge runs only where there is something to bridge.
    wanted = {name.removesuffix(".service") for unit in UNITS for name in instances(unit)} - {"clientmgr-bridge"}
    assert names == wanted


def test_every_setting_in_the_units_is_one_of_ours() -> None:
    named = {name for path in ENVIRONMENT_FILES for name in environment_of(path)}
    for unit in SERVICES:
        for line in parse_unit(unit.read_text())["Service"]["Environment"]:
            named |= {pair.partition("=")[0] for pair in line.split()}
    assert {name for name in named if name.lower() not in Settings.model_fields} == set()
