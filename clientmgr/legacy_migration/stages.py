"""The stages of a customer's way out of the legacy store, and the rules for the next one. Pure.

A stage decides where the device mapper reads: its flippers follow from it. Forward goes one stage at a time and only as
far as the comparison of both stores allows; back goes to any earlier stage at any time.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from clientmgr.tenants.flippers import Flipper


class Stage(enum.StrEnum):
    """In the order of the way."""

    LEGACY = "legacy"
    """The mapper reads DynamoDB. Nothing is imported."""
    IMPORTING = "importing"
    """The mapper reads DynamoDB. Its devices are imported, every night and when asked."""
    IN_SYNC = "in sync"
    """The same, and the last comparison found nothing in DynamoDB that PostgreSQL lacks."""
    POSTGRES_WITH_FALLBACK = "postgres with fallback"
    """The mapper reads PostgreSQL first, and asks DynamoDB for contacts without a device there."""
    POSTGRES_ONLY = "postgres only"
    """DynamoDB is not asked any more. Orphans are deleted from now on."""


ORDER: Final = tuple(Stage)
IMPORTED: Final = frozenset({Stage.IMPORTING, Stage.IN_SYNC, Stage.POSTGRES_WITH_FALLBACK})
"""The stages in which devices are imported and compared."""

FLIPPERS: Final[Mapping[Stage, Mapping[Flipper, bool]]] = {
    stage: {
        Flipper.USE_POSTGRES_DEVICE_MAPPER: ORDER.index(stage) >= ORDER.index(Stage.POSTGRES_WITH_FALLBACK),
        Flipper.CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER: stage is Stage.POSTGRES_ONLY,
    }
    for stage in Stage
}
"""What a stage says of the flippers."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the last import and its comparison came to."""

    imported_at: datetime | None = None
    """None: the import has not finished."""
    checked_at: datetime | None = None
    different: int = 0
    """Devices of the legacy store that PostgreSQL does not have, or not as new."""
    rejected: int = 0
    """Items that can't become devices."""

    @property
    def is_in_sync(self) -> bool:
        return self.checked_at is not None and not self.different and not self.rejected


@dataclass(frozen=True, slots=True)
class FallbackAnswers:
    """Contacts that the mapper looked up lately, and for how many of them only the legacy store had devices."""

    contacts: int = 0
    from_fallback: int = 0

    @property
    def share(self) -> float:
        return self.from_fallback / self.contacts if self.contacts else 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Up to where a comparison counts, by the settings."""

    check_is_good_for: timedelta
    max_fallback_share: float


def stage_by_flippers(flippers: Mapping[Flipper, bool]) -> Stage:
    """Of a customer that nobody has started to migrate: where the mapper reads tells."""
    if not flippers[Flipper.USE_POSTGRES_DEVICE_MAPPER]:
        return Stage.LEGACY
    if not flippers[Flipper.CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER]:
        return Stage.POSTGRES_WITH_FALLBACK
    return Stage.POSTGRES_ONLY


def next_stage(stage: Stage) -> Stage | None:
    position = ORDER.index(stage) + 1
    return ORDER[position] if position < len(ORDER) else None


def earlier_stages(stage: Stage) -> tuple[Stage, ...]:
    """The nearest first."""
    return ORDER[: ORDER.index(stage)][::-1]


def why_not_further(
    stage: Stage, comparison: Comparison, fallback: FallbackAnswers, limits: Limits, now: datetime
) -> str | None:
    """Why the customer can't go on to the next stage yet. None: it can."""
    match next_stage(stage):
        case None:
            return "it has left the legacy store already"
        case Stage.IMPORTING:
            return None
        case Stage.IN_SYNC | Stage.POSTGRES_WITH_FALLBACK:
            return _why_not_in_sync(comparison, limits, now)
        case _:
            return _why_not_in_sync(comparison, limits, now) or _why_fallback_is_needed(fallback, limits)


def stage_after_check(stage: Stage, comparison: Comparison) -> Stage:
    """Where a comparison takes a customer by itself. Where the mapper reads does not change by it."""
    if stage is Stage.IMPORTING and comparison.is_in_sync:
        return Stage.IN_SYNC
    if stage is Stage.IN_SYNC and not comparison.is_in_sync:
        return Stage.IMPORTING
    return stage


def _why_not_in_sync(comparison: Comparison, limits: Limits, now: datetime) -> str | None:
    if comparison.checked_at is None:
        return "its devices have not been imported and compared yet: the Dagster job legacy_migration_job does that"
    if comparison.different:
        return f"{comparison.different} devices of the legacy store are missing here, or older here"
    if comparison.rejected:
        return (
            f"{comparison.rejected} items of the legacy store can't be imported: `clientmgr migration status` says why"
        )
    if now - comparison.checked_at > limits.check_is_good_for:
        hours = limits.check_is_good_for / timedelta(hours=1)
        return f"the last comparison is older than {hours:g} hours: run legacy_migration_job for it first"
    return None


def _why_fallback_is_needed(fallback: FallbackAnswers, limits: Limits) -> str | None:
    if fallback.share <= limits.max_fallback_share:
        return None
    return (
        f"only the legacy store had the devices of {fallback.from_fallback} of {fallback.contacts} contacts in the "
        f"last 24 hours ({fallback.share:.2%}; at most {limits.max_fallback_share:.2%} may be)"
    )
