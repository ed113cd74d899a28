"""What every asset says of itself, added in one place: owner, code version, columns, a link to the dashboard.

An asset states what only it can know: its description, its kinds, its table (`dagster/table_name`). Where code outside
its own module computes it, it names that (`computed_by`). What belongs to others says whose it is (`owners`), and has
no code of ours.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import dagster as dg

from clientmgr.base.settings import load_settings
from clientmgr.operations.dagster_addresses import tenants_in_dashboard
from clientmgr_dagster.code_versions import code_version
from clientmgr_dagster.policies import OWNER

COMPUTED_BY: Final = "clientmgr/computed_by"
TABLE: Final = "dagster/table_name"
DASHBOARD: Final = "dashboard"

COLUMNS_FILE: Final = Path(__file__).with_name("table_columns.json")
"""The columns of the tables that assets name, from PostgreSQL's catalogue: `make columns` writes it."""
_TENANTS_TABLE: Final = "tenant_<customerId>."

Columns = Mapping[str, list[tuple[str, str, bool]]]
"""By table: name, type, and whether it may be null."""


def computed_by(*modules: str) -> dict[str, Any]:
    """For an asset's metadata: whose code it is made by, besides its own module's."""
    return {COMPUTED_BY: list(modules)}


def tenants_table(name: str) -> str:
    """A table that each tenant has."""
    return f"{_TENANTS_TABLE}{name}"


def column_key(spec: dg.AssetSpec) -> str:
    """Under which its columns stand in the file. Empty: it has no table."""
    return str(spec.metadata.get(TABLE, "")).replace(_TENANTS_TABLE, "tenant.")


def describing(definitions: dg.Definitions) -> Callable[[dg.AssetSpec], dg.AssetSpec]:
    """Adds to each asset's spec what is not its own matter."""
    defined_in = _modules(definitions)
    columns: Columns = json.loads(COLUMNS_FILE.read_text(encoding="utf-8"))
    dashboard = dg.MetadataValue.url(tenants_in_dashboard(load_settings()))

    def describe(spec: dg.AssetSpec) -> dg.AssetSpec:
        metadata = dict(spec.metadata)
        # For us, and not to be read in the UI.
        modules = [*defined_in.get(spec.key, ()), *metadata.pop(COMPUTED_BY, ())]
        if spec.partitions_def is not None:
            metadata[DASHBOARD] = dashboard
        if found := columns.get(column_key(spec)):
            metadata["dagster/column_schema"] = _schema(found)
        return spec.replace_attributes(
            metadata=metadata,
            owners=spec.owners or [OWNER],
            code_version=spec.code_version or (code_version(*modules) if modules else None),
        )

    return describe


def _modules(definitions: dg.Definitions) -> dict[dg.AssetKey, tuple[str, ...]]:
    """Where the assets are defined that Dagster computes."""
    computed = [one for one in definitions.assets or () if isinstance(one, dg.AssetsDefinition) and one.is_executable]
    return {key: (_module(one),) for one in computed for key in one.keys}


def _module(computed: dg.AssetsDefinition) -> str:
    function = computed.op.compute_fn
    return str(getattr(function, "decorated_fn", function).__module__)


def _schema(columns: list[tuple[str, str, bool]]) -> dg.TableSchema:
    return dg.TableSchema(
        [
            dg.TableColumn(name, kind, constraints=dg.TableColumnConstraints(nullable=nullable))
            for name, kind, nullable in columns
        ]
    )
