"""Which orphans may be deleted: the threshold, who is left out, and the guard against a mistake. Pure."""

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta

from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.settings import Settings


class Outcome(enum.StrEnum):
    """What happened to a tenant's orphans."""

    DELETED = "deleted"
    DRY_RUN = "dry run"
    EXCLUDED = "excluded"
    LEGACY = "legacy"
    """Still read from the legacy store: such a customer has no orphans."""
    GUARDED = "guarded"
    """So many that it looks like a mistake. Nothing was deleted, and somebody has to look."""
    NOT_SEARCHED = "not searched"
    """Nobody has looked for its orphans yet."""
    FAILED = "failed"
    STOPPED = "stopped"
    """Somebody stopped the run. What was deleted by then is audited, the rest was left alone."""


@dataclass(frozen=True, slots=True)
class OrphanPolicy:
    """What an operator allows."""

    threshold: timedelta
    max_share: float
    guard_minimum: int
    excluded: frozenset[CustomerId] = frozenset()
    dry_run: bool = False
    fallback_enabled: bool = True
    """Whether the device mapper may read the legacy store at all, see `from_settings`."""
    batch_size: int = 5000
    attempts: int = 3
    retry_pause_s: float = 1.0

    @classmethod
    def from_settings(cls, settings: Settings) -> "OrphanPolicy":
        return cls(
            threshold=timedelta(days=settings.orphan_threshold_days),
            max_share=settings.orphan_max_share,
            guard_minimum=settings.orphan_guard_minimum,
            excluded=parse_customers(settings.orphan_excluded_customers),
            dry_run=settings.orphan_dry_run,
            # An absent setting is not enough to delete by: another process may know the region of a legacy store.
            fallback_enabled=settings.client_fetcher_fallback_enabled and settings.legacy_store != "none",
            batch_size=settings.orphan_batch_size,
            attempts=settings.orphan_attempts,
        )

    def orphaned_before(self, now: datetime) -> datetime:
        """A device without a contact whose last sign of life is from before this moment is an orphan."""
        return now - self.threshold

    def needs_device_count(self, candidates: int) -> bool:
        """Whether the guard needs the number of all devices. Counting them takes a while."""
        return candidates > self.guard_minimum

    def is_guarded(self, candidates: int, devices: int) -> bool:
        return self.needs_device_count(candidates) and candidates > self.max_share * devices


def parse_customers(text: str) -> frozenset[CustomerId]:
    """Customer ids separated by commas."""
    ids = (part.strip() for part in text.split(","))
    return frozenset(parse_customer_id(one, field="ORPHAN_EXCLUDED_CUSTOMERS") for one in ids if one)
