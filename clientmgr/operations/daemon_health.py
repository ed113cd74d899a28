"""How the daemons that read messages are doing: judged by what each leaves unread, wherever it runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from clientmgr.broker.postgres.lag import SubscriptionLag
from clientmgr.contracts import topics

READS: Final[Mapping[str, tuple[str, ...]]] = {
    "writer": (topics.WRITER,),
    "republisher": (topics.REPUBLISHER,),
    "push-token-status": (topics.PUSH_TOKEN_STATUS, topics.WEB_PUSH_TOKEN_STATUS),
    "contact-deletion": (topics.CONTACT_DELETION,),
    "device-mapper-batch": (topics.device_mapper_subscription("batch", "dg00"),),
    "device-mapper-tx": (topics.device_mapper_subscription("tx", "dg00"),),
}
"""The subscriptions of each daemon that reads messages. (Those of the live positions read a Redis stream.)"""

State = Literal["never started", "late", "keeps up"]


@dataclass(frozen=True, slots=True)
class DaemonHealth:
    """What is to be seen of one daemon."""

    daemon: str
    state: State
    unread: int
    oldest_unread_s: float
    waiting_retries: int
    dead_letters: int


def judge(daemon: str, lags: Sequence[SubscriptionLag], *, late_after_s: float) -> DaemonHealth:
    """`lags`: of the subscriptions that it reads, as far as they exist."""
    seconds = max((lag.seconds() for lag in lags), default=0.0)
    return DaemonHealth(
        daemon,
        "never started" if not lags else "late" if seconds > late_after_s else "keeps up",
        unread=sum(lag.messages for lag in lags),
        oldest_unread_s=round(seconds, 1),
        waiting_retries=sum(lag.waiting for lag in lags),
        dead_letters=sum(lag.dead for lag in lags),
    )


def judge_all(lags: Sequence[SubscriptionLag], *, late_after_s: float) -> list[DaemonHealth]:
    by_name = {lag.subscription: lag for lag in lags}
    return [
        judge(daemon, [by_name[name] for name in names if name in by_name], late_after_s=late_after_s)
        for daemon, names in READS.items()
    ]
