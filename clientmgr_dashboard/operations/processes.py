"""Every process of the system: who runs, where, since when, what it did last. Of which nothing is known is not well."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from msgspec.structs import replace
from psycopg import Connection

from clientmgr.base.database import Role
from clientmgr.base.wording import plural
from clientmgr.broker.postgres.lag import SubscriptionLag
from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry
from clientmgr.operations.daemon_health import READS, judge_all
from clientmgr.operations.dagster_standing import DagsterStanding
from clientmgr.operations.heartbeats import Sign, instances_of
from clientmgr.operations.service_health import SPARK, ServiceState
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import NotFoundError, api_get, row_of

DAGSTER_DAEMON: Final = "dagster-daemon"
CODE_SERVER: Final = "dagster-code-server"

_ENTRIES: Final[Mapping[str, DaemonEntry]] = {
    process.name: entry for entry in (*daemons.ALL, *daemons.DAGSTER) for process in entry.processes
}
_EXPECTED: Final = (*(one.name for one in daemons.started()), *(one.name for one in daemons.DAGSTER))
"""Those that make up the system: `up` and deploy/ start them."""
_GIVES_SIGNS: Final = frozenset(name for name, entry in _ENTRIES.items() if Role.WRITER in entry.roles)


class DaemonState(Struct, frozen=True, rename="camel"):
    """How a daemon or a service is doing."""

    name: str
    state: str
    is_well: bool
    detail: str
    subscriptions: tuple[str, ...] = ()
    """What it is judged by, if it reads messages."""
    instances: int = 0
    """How many of it run, by their signs of life."""
    where: str = ""
    version: str = ""
    started_at: datetime | None = None
    last_work_at: datetime | None = None
    """When it last dealt with something; null: not since it started, or nobody counts it."""
    last_sign_at: datetime | None = None
    """Null: it gives none (then it is asked on its port), or never ran."""


class ProcessRequest(Struct, frozen=True, rename="camel"):
    name: Annotated[str, Meta(max_length=100, pattern=r"^[a-z0-9-]+$")]


class Instance(Struct, frozen=True, rename="camel"):
    """A start of a process."""

    state: str
    host: str
    pid: int
    version: str
    started_at: datetime
    beat_at: datetime
    last_work_at: datetime | None
    stopped_at: datetime | None


class ProcessDetail(Struct, frozen=True, rename="camel"):
    """A process and its starts, as far as they are kept."""

    name: str
    does: str
    command: str
    subscriptions: list[str]
    gives_signs: bool
    """Twice a minute, in `clientmgr.heartbeats`. Others are asked on their port, or Dagster is asked."""
    instances: list[Instance]


def process_states(
    lags: Sequence[SubscriptionLag],
    services: Sequence[ServiceState],
    signs: Sequence[Sign],
    dagster: DagsterStanding,
    *,
    late_after_s: float,
) -> list[DaemonState]:
    """All that the registry has, and all that ever gave a sign of life."""
    of_each: dict[str, list[Sign]] = {}
    for sign in signs:
        of_each.setdefault(sign.process, []).append(sign)
    states = {
        health.daemon: DaemonState(
            health.daemon,
            health.state,
            health.state == "keeps up",
            f"{health.unread:,} unread"
            + (f", {plural(health.waiting_retries, 'retry', 'retries')}" if health.waiting_retries else ""),
            READS[health.daemon],
        )
        for health in judge_all(lags, late_after_s=late_after_s)
    }
    states |= {one.name: DaemonState(one.name, one.state, one.is_well, one.detail) for one in services}
    states[DAGSTER_DAEMON] = _dagster_daemon(dagster)
    for name in (*_EXPECTED, *of_each):
        states.setdefault(name, DaemonState(name, "runs", True, ""))
    answering = {one.name for one in services if one.is_well}
    found = [_with_signs(one, of_each.get(one.name, []), answers=one.name in answering) for one in states.values()]
    return [replace(one, last_work_at=dagster.last_run) if one.name == CODE_SERVER else one for one in found]


def _with_signs(daemon: DaemonState, its: Sequence[Sign], *, answers: bool) -> DaemonState:
    """What it says of itself. One whose last sign is old is dead, however little it leaves unread."""
    if not its:
        silent = daemon.is_well and not answers and daemon.name in _GIVES_SIGNS
        return replace(daemon, state="no sign of life", is_well=False) if silent else daemon
    newest = max(its, key=lambda sign: sign.beat_at)
    runs = [sign for sign in its if sign.state == "runs"]
    # Whoever was started by hand may be stopped for good.
    is_over = newest.state == "stopped" and daemon.name not in _EXPECTED
    gone = {} if runs else {"state": newest.state, "is_well": is_over}
    return replace(
        daemon,
        instances=len(runs),
        where=", ".join(sorted({f"{sign.host}, process {sign.pid}" for sign in runs or [newest]})),
        version=newest.version,
        started_at=min(sign.started_at for sign in runs or [newest]),
        last_work_at=max((sign.last_work_at for sign in its if sign.last_work_at), default=None),
        last_sign_at=newest.stopped_at or newest.beat_at,
        **gone,
    )


def _dagster_daemon(dagster: DagsterStanding) -> DaemonState:
    """By its own heartbeats: it may not write to our tables. Dagster keeps neither its host nor its start."""
    if dagster.heard_of is None:
        return DaemonState(DAGSTER_DAEMON, "no sign of life", False, dagster.problem)
    stuck = f"not heard of for long: {', '.join(dagster.stuck)}" if dagster.stuck else ""
    state = "dead" if not dagster.daemon_lives else "stuck" if stuck else "runs"
    return DaemonState(
        DAGSTER_DAEMON,
        state,
        state == "runs",
        stuck or "by Dagster's own heartbeats, which name neither host nor start",
        instances=int(dagster.daemon_lives),
        last_work_at=dagster.last_tick,
        last_sign_at=dagster.heard_of,
    )


async def show_process(context: Context, _visitor: Visitor, request: ProcessRequest) -> ProcessDetail:
    def read(connection: Connection[Any]) -> list[Sign]:
        return instances_of(connection, request.name)

    signs, entry = await context.read(read), _ENTRIES.get(request.name)
    if entry is None and not signs and request.name != SPARK:
        raise NotFoundError(f"there is no process {request.name}")
    arguments = next((one.arguments for one in entry.processes if one.name == request.name), ()) if entry else ()
    return ProcessDetail(
        request.name,
        entry.does if entry else "Spark Connect, for the runs of Dagster" if request.name == SPARK else "",
        " ".join(("clientmgr", *arguments)) if arguments else "",
        list(READS.get(request.name, ())),
        request.name in _GIVES_SIGNS,
        [row_of(Instance, one) for one in signs],
    )


OPERATIONS = (api_get("/processes/{name}", "A process, and its starts.", show_process),)
