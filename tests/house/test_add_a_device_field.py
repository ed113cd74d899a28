"""An info field is added as docs/how_to.md says, in a copy of the code, and works from the event to Spark."""

from pathlib import Path

from clientmgr.base.database import Database
from tests.house.checkout import Checkout


def test_an_entry_and_a_migration_are_all_that_a_new_info_field_needs(database: Database, tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    checkout.add_line(
        "clientmgr/contracts/device_fields.py",
        'info("carrier", Kind.TEXT, Compares.TEXT),',
        after='info("timezone"',
    )
    checkout.add_tenant_migration("carrier", 'ALTER TABLE :"schema".devices ADD COLUMN carrier text;\n')

    seen = checkout.run("tests.house.device_field_walk", database.url)

    assert seen == {
        "event schema": True,
        "refused": "payload.carrier: expected `str | null`, got `int`",
        "sender": ["fr", "Telekom"],
        "filter": [True, False],
        "reported": "Vodafone",
        "export": ["Telekom", "Vodafone"],
        "shown": "Telekom",
        "spark": ["string", ["Vodafone", "Telekom"]],
        "legacy item": {"S": "Telekom"},
        "legacy device": "Telekom",
        "legacy scan": True,
        "compared with the legacy store": "Telekom",
    }
    assert len(checkout.changed) == 2
