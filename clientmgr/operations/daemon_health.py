"""How the daemons that read messages are doing: judged by what each leaves unread, wherever it runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from clientmgr.broker.postgres.lag import SubscriptionLag
from clientmgr.contracts import daemons

READS: Final[Mapping[str, tuple[str, ...]]] = {
    process.name: tuple(subscription.name for subscription in process.reads)
    for entry in daemons.ALL
    if entry.judged_by == "unread messages"
    for process in entry.processes
}
"""The subscriptions of each process that reads messages. (Those of the live positions read a Redis stream.)"""

State = Literal["never started", "paused", "late", "keeps up"]


@dataclass(frozen=True, slots=True)
class DaemonHealth:
    """How one daemon is doing."""

    daemon: str
    state: State
    unread: int
    oldest_unread_s: float
    waiting_retries: int
    dead_letters: int


def judge(daemon: str, lags: Sequence[SubscriptionLag], *, late_after_s: float) -> DaemonHealth:
    """`lags`: those of its subscriptions that exist."""
    seconds = max((lag.seconds() for lag in lags), default=0.0)
    return DaemonHealth(
        daemon,
        _state(lags, is_late=seconds > late_after_s),
        unread=sum(lag.messages for lag in lags),
        oldest_unread_s=round(seconds, 1),
        waiting_retries=sum(lag.waiting for lag in lags),
        dead_letters=sum(lag.dead for lag in lags),
    )


def _state(lags: Sequence[SubscriptionLag], *, is_late: bool) -> State:
    if not lags:
        return "never started"
    # Whoever is kept from reading is neither well nor late.
    if any(lag.pause for lag in lags):
        return "paused"
    return "late" if is_late else "keeps up"


def judge_all(lags: Sequence[SubscriptionLag], *, late_after_s: float) -> list[DaemonHealth]:
    by_name = {lag.subscription: lag for lag in lags}
    return [
        judge(daemon, [by_name[name] for name in names if name in by_name], late_after_s=late_after_s)
        for daemon, names in READS.items()
    ]
