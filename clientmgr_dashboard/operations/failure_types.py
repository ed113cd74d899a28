"""What is said of failed messages: rows of lists, groups, and one with its contents."""

from datetime import datetime

from msgspec import Struct

from clientmgr.operations.failures.finding import Failure, FailureGroup
from clientmgr.operations.failures.outcomes import ReplayOutcome


class FailureRow(Failure, frozen=True, rename="camel", kw_only=True):
    """A failed message in a list."""

    replay: ReplayOutcome | None
    """The last one."""


class FailureDetail(Failure, frozen=True, rename="camel", kw_only=True):
    """A failed message with its contents."""

    attributes: dict[str, str]
    offset: int
    partition: int
    published_at: datetime
    transaction_id: str
    handled_by: str | None
    payload: str
    """As text, indented where it is JSON."""
    is_revealed: bool
    """False: secrets in it are masked."""
    replays: list[ReplayOutcome]
    """The newest first."""
    targets: list[str]
    """Where it may go again."""
    customer_id: int | None
    application_code: str | None
    client_id: str | None
    contact_id: int | None
    """What it is about, as far as it says."""


class FailurePage(Struct, frozen=True, rename="camel"):
    items: list[FailureRow]
    next: str | None
    """Give this as `before` to go on; null: this was the end."""


class FailureGroups(Struct, frozen=True, rename="camel"):
    messages: int
    is_at_least: bool
    """There are so many that not all were looked at."""
    tenants: int
    waiting: int
    """Held messages, which are tried again by themselves."""
    groups: list[FailureGroup]
    """The largest."""
