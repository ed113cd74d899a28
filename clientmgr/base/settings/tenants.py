"""Tenants, the audit log, and how soon what was deleted is erased."""

from pydantic import Field, SecretStr

from clientmgr.base.settings.kinds import AnchorPlaces, StrongKey


class TenantsAndAudit:
    """Tenants and audit"""

    tenant_connections: int = Field(8, ge=1, le=100, description="Connections used to work on many tenants at once.")
    tenant_lock_timeout_ms: int = Field(
        10_000, ge=0, description="How long a schema change waits for a lock before it gives up. 0: for ever."
    )
    tenant_reconcile_grace_s: float = Field(
        300.0, ge=0, description="What is under way for longer counts as left behind: the reconciler finishes it."
    )
    unknown_tenant_grace_s: float = Field(
        120.0,
        ge=0,
        description="How long a message for an unknown customer waits for its activation, from its publishing.",
    )
    audit_hash_key: StrongKey = Field(
        SecretStr(""),
        description="Key of the audit log's hash chain and contact hashes. Empty: made and kept in DATA_DIR.",
    )
    audit_anchors: AnchorPlaces = Field(
        SecretStr(""),
        description="Where signed copies of the audit log's ends are kept, by comma: file:/path, redis://host, "
        "s3://bucket/prefix, https://host/path. Choose places that the database's owner can't write to. "
        "Empty: a file in DATA_DIR.",
    )
    audit_anchor_minutes: float = Field(
        1.0,
        gt=0,
        description="How often the ends of the audit log are copied to AUDIT_ANCHORS. "
        "What is cut off before it was copied stays unseen.",
    )


class Erasure:
    """Erasure"""

    erasure_hours: float = Field(
        24.0,
        gt=0,
        description="Within so many hours of a deletion nothing but keyed hashes is left of what was deleted.",
    )
    erasure_sweep_minutes: float = Field(
        0.0, ge=0, description="How often the sweep runs that sees to it. 0: a quarter of ERASURE_HOURS."
    )
    tombstone_days: float = Field(
        45.0,
        ge=31,
        description="How long hashes of what was deleted are kept. It must be longer than any transport keeps events.",
    )
    push_token_verdict_days: float = Field(
        90.0, gt=0, description="How long a provider's verdict on a push token is kept."
    )
