"""What deploy/ hands to each process of all that opens something: as clientmgr/contracts/handing_out.py has it."""

from collections.abc import Iterator
from typing import Final

from clientmgr.contracts.daemon_entry import DaemonEntry
from clientmgr.contracts.daemons import SHARED_SETTINGS
from clientmgr.contracts.handing_out import secrets_of

SAMPLES: Final = {
    "DATABASE_DDL_URL": "postgresql://clientmgr_ddl:change-me@db.internal:5432/clientmgr",
    "DATABASE_WRITER_URL": "postgresql://clientmgr_writer:change-me@db.internal:5432/clientmgr",
    "DATABASE_READER_URL": "postgresql://clientmgr_reader:change-me@db.internal:5432/clientmgr",
    "DAGSTER_DATABASE_URL": "postgresql://clientmgr_dagster:change-me@db.internal:5432/clientmgr"
    "?options=-csearch_path%3Ddagster",
    "AUDIT_HASH_KEY": "change-me",
    "LIVE_TOKEN_KEY": "change-me",
    "DASHBOARD_SESSION_KEY": "change-me",
    "INTAKE_SIGNING_KEY": "change-me",
}
"""What has to be filled in. All others may stay unset."""

NEEDED_BY_ALL: Final = frozenset({"REDIS_URL", "METRICS_TOKEN"})
"""In Kubernetes, where Prometheus comes from another machine."""


def environment_lines(entry: DaemonEntry) -> Iterator[str]:
    """Of a process's own environment file. What all share is in client-manager.env."""
    for name in secrets_of(entry):
        if name in SAMPLES:
            yield f"{name}={SAMPLES[name]}"
        elif name not in SHARED_SETTINGS:
            yield f"# {name}="


def kubernetes_secret(setting: str) -> str:
    """The secret that has one setting: AUDIT_HASH_KEY is in client-manager-audit-hash-key."""
    return f"client-manager-{setting.lower().replace('_', '-')}"


def secret_references(entry: DaemonEntry) -> Iterator[str]:
    """Of a container's `envFrom`."""
    for name in secrets_of(entry):
        optional = "" if name in SAMPLES or name in NEEDED_BY_ALL else ", optional: true"
        yield f"secretRef: {{name: {kubernetes_secret(name)}{optional}}}"
