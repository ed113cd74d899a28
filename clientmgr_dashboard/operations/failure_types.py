"""What is said of failed messages: rows of lists, groups, and one with its contents."""

from datetime import datetime

from msgspec import Struct


class ReplayOutcome(Struct, frozen=True, rename="camel"):
    """A replay, and how it ended."""

    replayed_by: str
    replayed_at: datetime
    changed: list[str]
    """The fields that were edited before."""
    target: str
    outcome: str
    """`done`, `under way`, `died again`, or `handed over` (to Google Pub/Sub, which does not tell)."""
    died_ref: str | None
    """The failed message that it became."""
    error_class: str
    error: str
    """Why it died again; of one under way, why it waits."""


class Failed(Struct, frozen=True, rename="camel"):
    """A failed message without its contents."""

    ref: str
    place: str
    """`dead letters`, `held`, or the error topic in which it lies."""
    topic: str
    """Where it came from; of an error topic that several topics share, that one's name."""
    subscription: str
    tenant: str
    key: str
    error_class: str
    error: str
    attempts: int
    failed_at: datetime
    bytes: int
    state: str
    """`open`, `waiting` (it is tried again by itself), `replayed` or `dropped`."""
    handled_at: datetime | None
    next_try_at: datetime | None


class FailureRow(Failed, frozen=True, rename="camel", kw_only=True):
    """A failed message in a list."""

    replay: ReplayOutcome | None
    """The last one."""


class FailureDetail(Failed, frozen=True, rename="camel", kw_only=True):
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


class FailureGroup(Struct, frozen=True, rename="camel"):
    """Messages of one tenant and topic that failed with the same kind of error."""

    place: str
    topic: str
    tenant: str
    error_class: str
    messages: int
    first_failed_at: datetime
    last_failed_at: datetime
    example: str
    """The newest error."""


class FailureGroups(Struct, frozen=True, rename="camel"):
    messages: int
    is_at_least: bool
    """There are so many that not all were looked at."""
    tenants: int
    waiting: int
    """Held messages, which are tried again by themselves."""
    groups: list[FailureGroup]
    """The largest."""
