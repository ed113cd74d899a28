"""Pictures of the running demo for the documentation. `python -m tools.screenshots` takes them, this lists them.

A new picture is a line here, and a place in the documentation that shows it: a test looks for both.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Shot:
    """A picture, docs/images/<name>.png."""

    name: str
    page: str
    """Its address; `{dagster}`, `{live}` and `{dashboard}` stand for where they are."""
    shows: tuple[str, ...]
    """Texts that are to be seen."""
    ready: str = "true"
    """JavaScript that becomes true when the page is worth a picture."""
    width: int = 1280
    height: int = 800
    dark: bool = False


# Of the table below the map: positions come, and every device has been drawn for a while.
_FLEET_MOVES = (
    "document.querySelectorAll('#rows tr').length > 20 && Number(document.getElementById('rate').textContent) > 5"
)

SHOTS: Final = (
    Shot("dagster-lineage", "{dagster}/asset-groups", ("tenancy", "orphans"), height=620),
    Shot(
        "dagster-assets",
        "{dagster}/locations/client_manager/asset-groups/dashboard/lineage",
        ("dashboard_tenant_metrics", "Asset checks", "dynamodb_devices"),
        "!document.body.innerText.includes('Loading')",
        height=620,
    ),
    Shot(
        "dagster-tenant", "{dagster}/assets/tenant_schema?view=partitions&partition=1001", ("Latest materialization",)
    ),
    Shot("live", "{live}/live", (), _FLEET_MOVES),
    Shot("dashboard", "{dashboard}/", ("Client Manager",)),
    Shot("dashboard-tenant", "{dashboard}/tenants/1002", ("1002",)),
    Shot("dashboard-failures", "{dashboard}/failures?customerId=1002", ("pushEnabled",)),
    Shot(
        "dashboard-device",
        "{dashboard}/devices/one?customerId=1002&applicationCode=SHOP-APP&clientId=phone-of-50042&channel=push",
        ("phone-of-50042", "PUSH_DISABLED"),
    ),
    Shot("dashboard-messages", "{dashboard}/messages", ("client-manager.writer",), dark=True),
)
