"""What `clientmgr demo` adds to the system: three tenants with a past, traffic that never ends, a story, and a fleet.

Its BigQuery and DynamoDB are stand-ins for the nightly jobs (`nightly_jobs.py`). Sending needs neither: flippers make
it read PostgreSQL alone.
"""

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import ClientManagerError
from clientmgr.base.settings import Settings
from clientmgr.contracts.daemon_entry import DaemonEntry
from clientmgr.contracts.daemons import TRANSPORT_SETTINGS
from clientmgr.local.demo import story
from clientmgr.local.processes.programs import OwnCommand
from clientmgr.tenants.flippers import Flipper, set_flipper
from clientmgr.tenants.names import names_of, rename_tenant
from clientmgr.tenants.schema_manager import Change, TenantSchemaManager

BUSY, QUIET, EMPTY = CustomerId(1001), story.SHOP, CustomerId(1003)
DEMO_CUSTOMERS = (BUSY, QUIET, EMPTY)
NAMES = {BUSY: "Harbour Bank", QUIET: "Corner Shop", EMPTY: "Not Open Yet"}
DEVICES_BY_NOW = {BUSY: 480, QUIET: 350}
"""About as many as the traffic's head start makes: where the made-up history has to end."""

_PUBLISHES = DaemonEntry(
    "demo", "publishes what the demo shows", roles=(Role.WRITER, Role.READER), settings=TRANSPORT_SETTINGS
)
"""What the demo's own programs are handed."""

TRAFFIC = OwnCommand(
    "demo-traffic",
    (
        "load",
        "--quiet",
        "--forever",
        *("--tenants", f"{BUSY},{QUIET}"),
        *("--skew", "2"),
        *("--devices", "500"),
        # Some devices to look at from the first moment on, then a pace that a person can follow.
        *("--head-start", "3000"),
        *("--rate", "20"),
        *("--verdicts", "0.03"),
        *("--contact-deletions", "0.002"),
    ),
    (_PUBLISHES,),
)

MESSAGES = OwnCommand(
    "demo-messages",
    ("device-mapper", "send-samples", "--customer", str(BUSY), "--messages", "0", "--every", "5"),
    (_PUBLISHES,),
)

FLEET = OwnCommand("demo-fleet", ("live", "fleet"), (_PUBLISHES,))


def open_to_all(settings: Settings) -> Settings:
    """The live page without tokens, unless somebody asked for them."""
    return settings if "live_auth" in settings.model_fields_set else settings.model_copy(update={"live_auth": "off"})


def prepare(settings: Settings) -> None:
    """Three tenants whose devices are read from PostgreSQL alone, their past, and the story. Safe to do again."""
    results = TenantSchemaManager(Database.from_settings(settings), settings).activate(DEMO_CUSTOMERS, actor="demo")
    if failed := [result for result in results if result.change is Change.FAILED]:
        raise ClientManagerError(f"demo tenant {failed[0].customer_id}: {failed[0].error}")
    with Database.from_settings(settings).connect(Role.WRITER) as connection:
        audit = AuditLogger.from_settings(settings)
        for flipper in Flipper:
            set_flipper(connection, audit, flipper, None, enabled=True, actor="demo")
        named = names_of(connection, DEMO_CUSTOMERS)
        for customer_id, name in NAMES.items():
            if customer_id not in named:
                rename_tenant(connection, audit, customer_id, name, actor="demo")
    story.make_history(settings, DEVICES_BY_NOW)
    story.tell(settings)
