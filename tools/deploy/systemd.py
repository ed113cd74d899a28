"""deploy/systemd: a unit for each way to start a process, and a file with what each process alone is handed."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry, Process
from tools.deploy.ports import metrics_ports
from tools.deploy.secrets import environment_lines

BY_NAME: Final = "clientmgr@"
"""The unit of all that `clientmgr run NAME` starts."""

NOTE_ON_SECRETS: Final = (
    "# Mode 0600, owner root: systemd reads it before it becomes clientmgr. The logins: clientmgr migrate --logins."
)

STOPPING: Final = """\
# SIGTERM lets it finish what it has in hand, for SHUTDOWN_TIMEOUT_S (20) and a moment to roll back the rest.
# Whoever raises that setting raises this too."""

UNIT: Final = """\
{note}
[Unit]
Description=Client Manager: {description}
Documentation=file:/opt/client-manager/docs/{page}
After=network-online.target clientmgr-migrate.service
Wants=network-online.target
PartOf=clientmgr.target
# Never give up: a database that is away for a night comes back.
StartLimitIntervalSec=0

[Service]
Type=exec
User=clientmgr
Group=clientmgr
EnvironmentFile=/etc/client-manager/client-manager.env
EnvironmentFile=/etc/client-manager/{environment_file}.env
Environment=DATA_DIR=/var/lib/client-manager LOG_FORMAT=json
StateDirectory=client-manager
StateDirectoryMode=0700
WorkingDirectory=/var/lib/client-manager
ExecStart=/opt/client-manager/.venv/bin/clientmgr {arguments}
{stopping}
KillSignal=SIGTERM
KillMode=mixed
TimeoutStopSec={stop_within_s}
Restart=always
RestartSec=5
# A wrong setting or option: starting again would not mend it.
RestartPreventExitStatus=2

# Nothing of the machine but its own folder, and no more rights than it was started with.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RemoveIPC=yes
RestrictAddressFamilies={address_families}
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
UMask=0077

[Install]
WantedBy=clientmgr.target
"""


@dataclass(frozen=True)
class Unit:
    """What sets one unit apart from the others."""

    name: str
    note: str
    description: str
    page: str
    environment_file: str
    arguments: str
    stopping: str = STOPPING
    stop_within_s: int = 30
    address_families: str = "AF_UNIX AF_INET AF_INET6"

    def text(self) -> str:
        note = "\n".join(f"# {line}" for line in textwrap.wrap(self.note, 118))
        return UNIT.format(**{**vars(self), "note": note})


def files() -> dict[str, str]:
    """Every generated file by its name below deploy/systemd."""
    found = {f"{unit.name}.service": unit.text() for unit in _units()}
    ports = dict(metrics_ports())
    for entry in (*daemons.ALL, *daemons.DAGSTER):
        if entry.starts != "by hand":
            for process in entry.processes:
                port = [f"METRICS_PORT={ports[process.name]}"] if process.name in ports else []
                lines = [NOTE_ON_SECRETS, *port, *environment_lines(entry)]
                found[f"env/{process.name}.env"] = "".join(f"{line}\n" for line in lines)
    return found


def units_to_enable() -> list[str]:
    """What `systemctl enable` needs on a machine that runs everything, instances of one unit together."""
    instances: dict[str, list[str]] = {}
    for entry in (*daemons.ALL, *daemons.DAGSTER):
        if entry.starts == "always":
            for process in entry.processes:
                unit, instance = unit_of(entry, process)
                instances.setdefault(unit, []).append(instance)
    named = [f"{unit}{_braces(names)}" if unit.endswith("@") else unit for unit, names in instances.items()]
    return ["clientmgr.target clientmgr-migrate", *named]


def unit_of(entry: DaemonEntry, process: Process) -> tuple[str, str]:
    """The unit that starts a process, and the instance of it."""
    if entry.several:
        return f"clientmgr-{entry.name}@", process.name.removeprefix(f"{entry.name}-")
    if process.arguments == ("run", process.name):
        return BY_NAME, process.name
    return f"clientmgr-{entry.name}", ""


def _units() -> Iterator[Unit]:
    by_name: list[str] = []
    for entry in daemons.ALL:
        if entry.starts == "by hand":
            continue
        unit, instance = unit_of(entry, entry.processes[0])
        if unit == BY_NAME:
            by_name.append(instance)
        elif instance:
            yield _unit_of_several(entry, unit)
        else:
            yield _unit_of_one(entry, unit)
    note = f"A daemon: {BY_NAME}{', @'.join(by_name)}."
    yield Unit(BY_NAME, note, "%i", "daemons/%i.md", "%i", "run %i")
    yield from _units_of_dagster()


def _unit_of_one(entry: DaemonEntry, unit: str) -> Unit:
    (process,) = entry.processes
    note = entry.deployment.note or f"{entry.name}: {entry.does}."
    if entry.starts == "where needed":
        note += " Other arguments: a drop-in with another ExecStart."
    page = f"daemons/{entry.name}.md"
    return Unit(unit, note, entry.name, page, entry.name, " ".join(process.arguments))


def _unit_of_several(entry: DaemonEntry, unit: str) -> Unit:
    """`%i` is what sets its processes apart."""
    process = entry.processes[0]
    _, first = unit_of(entry, process)
    arguments = ["%i" if word == first else word for word in (*process.arguments, *process.spelled_out)]
    names = ", @".join(unit_of(entry, one)[1] for one in entry.processes)
    note = f"{entry.name}: {entry.does}. {unit}{names}. Other options: a drop-in with another ExecStart."
    page = f"daemons/{entry.name}.md"
    return Unit(unit, note, f"{entry.name} for %i", page, f"{entry.name}-%i", " ".join(arguments))


def _units_of_dagster() -> Iterator[Unit]:
    families = f"{Unit.address_families} AF_NETLINK"
    code_server, daemon, webserver = daemons.DAGSTER
    yield Unit(
        f"clientmgr-{code_server.name}",
        "Dagster's code server: our definitions, and the runs. One a system, on the machine of daemon and webserver: "
        "they reach it by a socket in DATA_DIR. Restart it for new code.",
        "Dagster code server",
        "dagster.md",
        code_server.name,
        " ".join(code_server.arguments),
        stopping="# SIGTERM lets its runs end, for SHUTDOWN_TIMEOUT_S (20). Then it interrupts them, and Dagster "
        "starts them again.",
        stop_within_s=60,
        address_families=families,
    )
    yield Unit(
        f"clientmgr-{daemon.name}",
        "Dagster's daemon: when sensors, schedules and queued runs are due. One a system, on the machine of code "
        "server and webserver.",
        "Dagster daemon",
        "dagster.md",
        daemon.name,
        " ".join(daemon.arguments),
        address_families=families,
    )
    yield Unit(
        f"clientmgr-{webserver.name}",
        "Dagster's UI, with the dashboard's users. Without them it starts on loopback only. Put a proxy with TLS in "
        "front: the session's cookie is for HTTPS.",
        "Dagster webserver",
        "dagster.md",
        webserver.name,
        " ".join(webserver.arguments),
        address_families=families,
    )


def _braces(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{{{','.join(names)}}}"
