"""Whether all is well, at a glance: tenants, traffic, errors, lag, daemons, nightly jobs."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct
from psycopg import Connection

from clientmgr.base.wording import plural, span
from clientmgr.broker.error_topics import ERROR_TOPICS, error_counts
from clientmgr.broker.postgres.lag import SubscriptionLag, subscription_lag
from clientmgr.contracts import topics
from clientmgr.operations.dagster_addresses import ui_for_browsers
from clientmgr.operations.dagster_standing import DagsterStanding, dagster_standing
from clientmgr.operations.heartbeats import Sign, signs
from clientmgr.operations.nightly_jobs import DAGSTER_JOBS, NightlyWork, nightly_work
from clientmgr.operations.samples import TrendPoint, last_day, trend
from clientmgr.operations.service_health import ServiceState, probe_services
from clientmgr.tenant_metrics.tenants import Totals, count_behind, totals
from clientmgr.tenants.registry import count_by_status
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import Nothing, api_get, row_of
from clientmgr_dashboard.operations.processes import OPERATIONS as PROCESSES
from clientmgr_dashboard.operations.processes import DaemonState, process_states

COUNT_AT_MOST = 10_000
"""Unread messages of a partition: beyond this, the exact number does not matter."""
LOOK_AT_ERRORS = 10_000
SHARED_FOR_S = 1.0
"""However many people watch, the database is asked once in this time."""
SERVICES_EVERY_S = 5.0
DAGSTER_EVERY_S = 10.0
TREND_EVERY_S = 15.0


class Problem(Struct, frozen=True, rename="camel"):
    """Something that is wrong, in a few words, and where that is to be seen."""

    text: str
    link: str


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
    paused_by: str | None
    """Who has paused it; null: it is not paused."""


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
    problems: list[Problem]
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
    jobs_problem: str
    """Why nothing is known of the jobs' runs; empty: it is."""
    dagster_url: str
    """For browsers: its runs are below it."""
    looked_at: datetime


class Trend(Struct, frozen=True, rename="camel"):
    """The last 24 hours, or what of them is known."""

    points: list[TrendPoint]
    newest_sample_at: datetime | None
    looked_at: datetime


async def overview(context: Context, _visitor: Visitor, _request: Nothing) -> Overview:
    """However many people watch, the database is asked once a second."""
    return await context.shared.answer("overview", SHARED_FOR_S, lambda: _look(context))


async def _look(context: Context) -> Overview:
    settings = context.settings
    (lags, errors), services, dagster = await asyncio.gather(_log(context), _services(context), _dagster(context))
    stored = await context.read(_stored, dagster, tolerance=settings.sync_tolerance)
    daemons = process_states(lags, services, stored.signs, dagster, late_after_s=settings.daemon_late_after_s)
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
        jobs_problem=dagster.problem,
        dagster_url=ui_for_browsers(settings),
        looked_at=datetime.now(UTC),
    )


async def show_trend(context: Context, _visitor: Visitor, _request: Nothing) -> Trend:
    return await context.shared.answer("trend", TREND_EVERY_S, lambda: _trend(context))


async def _trend(context: Context) -> Trend:
    samples = await context.read(last_day)
    now = datetime.now(UTC)
    return Trend(trend(samples, now), samples[-1].at if samples else None, now)


async def _dagster(context: Context) -> DagsterStanding:
    def look() -> Awaitable[DagsterStanding]:
        return asyncio.to_thread(dagster_standing, context.settings, sorted(set(DAGSTER_JOBS.values())))

    return await context.shared.answer("dagster", DAGSTER_EVERY_S, look)


async def _services(context: Context) -> list[ServiceState]:
    return await context.shared.answer("services", SERVICES_EVERY_S, lambda: probe_services(context.settings))


class _Stored(Struct, frozen=True):
    tenants: dict[str, int]
    behind: int
    totals: Totals
    nightly: list[NightlyWork]
    signs: list[Sign]


def _stored(connection: Connection[Any], dagster: DagsterStanding, *, tolerance: float) -> _Stored:
    return _Stored(
        {str(status): count for status, count in count_by_status(connection).items()},
        count_behind(connection),
        totals(connection, tolerance=tolerance),
        nightly_work(connection, dagster.runs),
        signs(connection),
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
        is_late=seconds > late_after_s and lag.pause is None,
        paused_by=None if lag.pause is None else lag.pause.paused_by,
    )


def _errors_per_minute(context: Context) -> float | None:
    rates = [context.sampler.rate(topic) for topic in ERROR_TOPICS]
    known = [rate for rate in rates if rate is not None]
    return round(sum(known) * 60, 1) if known else None


def _problems(
    daemons: list[DaemonState], groups: list[GroupLag], dead_letters: int, errors: list[ErrorTopic], stored: _Stored
) -> list[Problem]:
    problems = [
        Problem(f"{group.subscription} is {span(group.oldest_unread_s)} behind", f"/#lag-{group.subscription}")
        for group in groups
        if group.is_late
    ]
    problems += [
        Problem(f"{group.subscription} is paused by {group.paused_by}", "/messages")
        for group in groups
        if group.paused_by
    ]
    problems += [
        Problem(f"{daemon.name}: {daemon.state}", f"/processes/{daemon.name}")
        for daemon in daemons
        if not daemon.is_well
    ]
    if dead_letters:
        problems.append(Problem(plural(dead_letters, "dead letter"), "/failures"))
    problems += [
        Problem(
            f"{'at least ' if topic.is_at_least else ''}{plural(topic.open, 'message')} in {topic.topic}",
            f"/failures?topic={topic.topic}",
        )
        for topic in errors
        if topic.open
    ]
    totals = stored.totals
    of_tenants = (
        (stored.behind, "is behind on migrations", "are behind on migrations", "behind"),
        (totals.failed, "could not be counted", "could not be counted", "failed"),
        (totals.out_of_sync, "differs from DynamoDB", "differ from DynamoDB", "out-of-sync"),
    )
    problems += [
        Problem(plural(count, f"tenant {one}", f"tenants {many}"), f"/tenants?show={show}")
        for count, one, many, show in of_tenants
        if count
    ]
    return problems + [Problem(text, "/#jobs") for text in map(_problem_of_job, stored.nightly) if text]


def _problem_of_job(work: NightlyWork) -> str:
    if work.name == "audit verification" and work.failures:
        return f"the audit's verification has {plural(work.failures, 'finding')}"
    if work.state == "late":
        return f"{work.name} was not done last night"
    return f"the newest run of {work.name} failed" if work.state == "failed" else ""


OPERATIONS = (
    api_get("/overview", "Everything at a glance.", overview),
    api_get("/overview/trend", "Events, errors, sends and lag of the last 24 hours.", show_trend),
    *PROCESSES,
)
