"""What a change of a flipper for all tenants would do, told before somebody makes it. It only reads."""

from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.wording import plural
from clientmgr.orphans.policy import OrphanPolicy
from clientmgr.tenants.flippers import Flipper, Flippers, list_settings

_QUERIES = named_queries("operations/queries/flipper_effects.sql")


LOOK_AT: Final = 50_000
"""Messages of each topic that are looked at."""


@dataclass(frozen=True, slots=True)
class FlipperEffect:
    """What would be different."""

    tenants: int
    """For so many it would change what counts."""
    own_settings: int
    """So many have a setting of their own and stay as they are."""
    messages_last_hour: int
    """What the device mappers were sent for the tenants that change, in the last hour."""
    is_at_least: bool
    """There were so many that not all were counted."""
    stop_reading_legacy: int
    """Tenants whose devices would not come from DynamoDB any more. Their orphans are deleted then."""
    start_reading_legacy: int

    @property
    def in_words(self) -> list[str]:
        """A sentence for each thing that would change."""
        at_least = "at least " if self.is_at_least else ""
        own = f" Not changed, because of a setting of its own: {plural(self.own_settings, 'tenant')}."
        told = [
            f"It changes {plural(self.tenants, 'tenant')}.{own if self.own_settings else ''}",
            f"In the last hour the device mappers were sent {at_least}{plural(self.messages_last_hour, 'message')} for "
            "what changes.",
        ]
        if self.stop_reading_legacy:
            told.append(
                f"{plural(self.stop_reading_legacy, 'tenant')} would leave the legacy store: DynamoDB is not asked any "
                "more, and orphans are deleted from the next night on."
            )
        if self.start_reading_legacy:
            told.append(
                f"{plural(self.start_reading_legacy, 'tenant')} would be read from the legacy store again. "
                "Meanwhile no orphans are deleted there."
            )
        return told


def effect_for_all(
    connection: Connection[Any], flipper: Flipper, enabled: bool | None, policy: OrphanPolicy
) -> FlipperEffect:
    """`enabled` None: forget the setting for all."""
    settings = [(one.name, one.customer_id, one.enabled) for one in list_settings(connection)]
    after = [one for one in settings if one[:2] != (flipper, None)]
    if enabled is not None:
        after.append((flipper, None, enabled))
    old, new = Flippers(settings), Flippers(after)
    tenants = [row[0] for row in connection.execute(_QUERIES["tenants"]).fetchall()]
    own = {customer_id for name, customer_id, _ in settings if name == flipper and customer_id is not None}
    changed = [one for one in tenants if old.is_on(flipper, one) != new.is_on(flipper, one)]
    legacy = [
        tuple(flippers.legacy_store_is_read(one, fallback_enabled=policy.fallback_enabled) for flippers in (old, new))
        for one in changed
    ]
    wanted = {"tenants": [str(one) for one in changed], "look_at": LOOK_AT}
    counted = connection.execute(_QUERIES["messages"], wanted).fetchone()
    messages, is_at_least = counted or (0, False)
    return FlipperEffect(
        len(changed),
        len(own & set(tenants)),
        messages,
        is_at_least,
        legacy.count((True, False)),
        legacy.count((False, True)),
    )
