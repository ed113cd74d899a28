"""Whether all is well, at a glance: tenants, traffic, errors, lag, daemons, nightly jobs."""

import asyncio
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace
from psycopg import Connection

from clientmgr.broker.error_topics import ERROR_TOPICS, error_counts
from clientmgr.broker.postgres.lag import SubscriptionLag, subscription_lag
from clientmgr.contracts import topics
from clientmgr.operations.daemon_health import judge_all
from clientmgr.operations.heartbeats import Sign, signs
from clientmgr.operations.nightly_jobs import NightlyWork, nightly_work
from clientmgr.operations.service_health import ServiceState, probe_services
from clientmgr.tenant_metrics.tenants import Totals, count_behind, totals
from clientmgr.tenants.registry import count_by_status
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import Nothing, api_get, row_of
from clientmgr_dashboard.wording import plural

COUNT_AT_MOST = 10_000
"""Unread messages of a partition: beyond this, the exact number does not matter."""
LOOK_AT_ERRORS = 10_000
SHARED_FOR_S = 1.0
"""However many people watch, the database is asked once in this time."""
SERVICES_EVERY_S = 5.0


class DaemonState(Struct, frozen=True, rename="camel"):
    """How a daemon or a service is doing."""

    name: str
    state: str
    is_well: bool
    detail: str
    instances: int = 0
    """How many of it run, by their signs of life."""
    where: str = ""
    version: str = ""
    started_at: datetime | None = None
    last_work_at: datetime | None = None
    """When it last dealt with a message; null: not since it started, or it deals with none."""
    last_sign_at: datetime | None = None
    """Null: it gives none (then it is asked on its port), or never ran."""


class GroupLag(Struct, frozen=True, rename="camel"):
    """How far a group is behind in its topic."""

    topic: str
    subscription: str
    unread: int
    is_at_least: bool
    """There are so many that they were not all counted."""
    oldest_unread_s: float
    retries: int
    dead_letters: int
    is_late: bool


class ErrorTopic(Struct, frozen=True, rename="camel"):
    """How many messages somebody gave up on."""

    topic: str
    open: int
    last_day: int
    is_at_least: bool
    """There are so many that they were not all counted."""


class Overview(Struct, frozen=True, rename="camel"):
    """Everything at a glance."""

    state: Literal["well", "look", "act"]
    problems: list[str]
    """What is wrong, in a few words each."""
    tenants: dict[str, int]
    """By status."""
    behind_on_migrations: int
    totals: Totals
    events_per_second: float | None
    """Device events published, of late; null: not known yet."""
    event_rates: list[float]
    """The same over the last minutes, the oldest first."""
    errors_per_minute: float | None
    dead_letters: int
    groups: list[GroupLag]
    errors: list[ErrorTopic]
    daemons: list[DaemonState]
    nightly: list[NightlyWork]
    looked_at: datetime


async def overview(context: Context, _visitor: Visitor, _request: Nothing) -> Overview:
    """However many people watch, the database is asked once a second."""
    return await context.shared.answer("overview", SHARED_FOR_S, lambda: _look(context))


async def _look(context: Context) -> Overview:
    settings = context.settings
    stored, (lags, errors), services = await asyncio.gather(
        context.read(_stored, tolerance=settings.sync_tolerance), _log(context), _services(context)
    )
    daemons = [
        DaemonState(
            health.daemon,
            health.state,
            health.state == "keeps up",
            f"{health.unread:,} unread"
            + (f", {plural(health.waiting_retries, 'retry', 'retries')}" if health.waiting_retries else ""),
        )
        for health in judge_all(lags, late_after_s=settings.daemon_late_after_s)
    ] + [DaemonState(one.name, one.state, one.is_well, one.detail) for one in services]
    daemons = _with_signs(daemons, stored.signs)
    groups = [_group(lag, settings.daemon_late_after_s) for lag in lags]
    dead_letters = sum(lag.dead for lag in lags)
    problems = _problems(daemons, groups, dead_letters, errors, stored)
    return Overview(
        state="act" if any(group.is_late for group in groups) else "look" if problems else "well",
        problems=problems,
        tenants=stored.tenants,
        behind_on_migrations=stored.behind,
        totals=stored.totals,
        events_per_second=context.sampler.rate(topics.WRITER),
        event_rates=context.sampler.rates(topics.WRITER),
        errors_per_minute=_errors_per_minute(context),
        dead_letters=dead_letters,
        groups=groups,
        errors=errors,
        daemons=daemons,
        nightly=stored.nightly,
        looked_at=datetime.now(UTC),
    )


async def _services(context: Context) -> list[ServiceState]:
    return await context.shared.answer("services", SERVICES_EVERY_S, lambda: probe_services(context.settings))


class _Stored(Struct, frozen=True):
    tenants: dict[str, int]
    behind: int
    totals: Totals
    nightly: list[NightlyWork]
    signs: list[Sign]


def _stored(connection: Connection[Any], *, tolerance: float) -> _Stored:
    return _Stored(
        {str(status): count for status, count in count_by_status(connection).items()},
        count_behind(connection),
        totals(connection, tolerance=tolerance),
        nightly_work(connection),
        signs(connection),
    )


def _with_signs(daemons: list[DaemonState], found: list[Sign]) -> list[DaemonState]:
    """What each says of itself. One whose last sign is old is dead, however little it leaves unread."""
    of_each: dict[str, list[Sign]] = {}
    for sign in found:
        of_each.setdefault(sign.process, []).append(sign)
    known = {daemon.name for daemon in daemons}
    others = [DaemonState(name, "runs", True, "") for name in of_each if name not in known]
    return [_with_sign(daemon, of_each.get(daemon.name, [])) for daemon in daemons + others]


def _with_sign(daemon: DaemonState, its: list[Sign]) -> DaemonState:
    if not its:
        return daemon
    newest = max(its, key=lambda sign: sign.beat_at)
    runs = [sign for sign in its if sign.state == "runs"]
    gone = {} if runs else {"state": newest.state, "is_well": False}
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


async def _log(context: Context) -> tuple[list[SubscriptionLag], list[ErrorTopic]]:
    async with context.reading() as connection:
        lags = await subscription_lag(connection, at_most=COUNT_AT_MOST)
        counts = await error_counts(connection, look_at=LOOK_AT_ERRORS)
    return lags, [row_of(ErrorTopic, count) for count in counts]


def _group(lag: SubscriptionLag, late_after_s: float) -> GroupLag:
    seconds = round(lag.seconds(), 1)
    return GroupLag(
        topic=lag.topic,
        subscription=lag.subscription,
        unread=lag.messages,
        is_at_least=any(partition.messages >= COUNT_AT_MOST for partition in lag.partitions),
        oldest_unread_s=seconds,
        retries=lag.waiting,
        dead_letters=lag.dead,
        is_late=seconds > late_after_s,
    )


def _errors_per_minute(context: Context) -> float | None:
    rates = [context.sampler.rate(topic) for topic in ERROR_TOPICS]
    known = [rate for rate in rates if rate is not None]
    return round(sum(known) * 60, 1) if known else None


def _problems(
    daemons: list[DaemonState], groups: list[GroupLag], dead_letters: int, errors: list[ErrorTopic], stored: _Stored
) -> list[str]:
    problems = [f"{group.subscription} is {group.oldest_unread_s:,.0f} s behind" for group in groups if group.is_late]
    problems += [f"{daemon.name}: {daemon.state}" for daemon in daemons if not daemon.is_well]
    if dead_letters:
        problems.append(plural(dead_letters, "dead letter"))
    problems += [
        f"{'at least ' if topic.is_at_least else ''}{plural(topic.open, 'message')} in {topic.topic}"
        for topic in errors
        if topic.open
    ]
    if stored.behind:
        problems.append(plural(stored.behind, "tenant is behind on migrations", "tenants are behind on migrations"))
    if stored.totals.failed:
        problems.append(plural(stored.totals.failed, "tenant could not be counted", "tenants could not be counted"))
    if stored.totals.out_of_sync:
        problems.append(
            plural(stored.totals.out_of_sync, "tenant differs from DynamoDB", "tenants differ from DynamoDB")
        )
    problems += [f"{work.name} was not done last night" for work in stored.nightly if work.state == "late"]
    return problems


OPERATIONS = (api_get("/overview", "Everything at a glance.", overview),)
