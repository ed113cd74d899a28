"""The outcome of a request for a tenant, in a form that can be shown."""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from clientmgr.base.customer_ids import CustomerId


class Change(enum.StrEnum):
    """What happened to a tenant."""

    CREATED = "created"
    MIGRATED = "migrated"
    UNCHANGED = "unchanged"
    DROPPED = "dropped"
    ALREADY_ABSENT = "already absent"
    SUPERSEDED = "superseded"
    """A newer request for this customer says otherwise: nothing was done."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TenantResult:
    """The outcome for one tenant; `error` says why it failed."""

    customer_id: CustomerId
    change: Change
    schema_version: int = 0
    rows_deleted: int | None = None
    error: str | None = None


OnResult = Callable[[TenantResult], None]


def explain(error: Exception) -> str:
    """The error in one line, for a table or a log."""
    text = " ".join(str(error).split("\n")[0].split()) or type(error).__name__
    sqlstate = getattr(error, "sqlstate", None)
    return f"{text} ({sqlstate})" if sqlstate else text
