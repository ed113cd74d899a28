"""What a process is handed of all that opens something: the logins of its roles, and the secrets that its entry names.

`up`, the units and the manifests go by it. The owner's URL is in no entry: only `clientmgr migrate` gets it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from clientmgr.base.database import Role
from clientmgr.base.settings import sensitive_setting_names, unset_in_environment
from clientmgr.contracts.daemon_entry import DaemonEntry
from clientmgr.contracts.daemons import DAGSTER, SHARED_SETTINGS, TRANSPORT_SETTINGS

LOGIN_SETTINGS: Final[Mapping[Role, str]] = {
    Role.DDL: "DATABASE_DDL_URL",
    Role.WRITER: "DATABASE_WRITER_URL",
    Role.READER: "DATABASE_READER_URL",
}

FOREIGN_CREDENTIALS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("AWS_",): ("DYNAMODB_ENDPOINT", "AUDIT_ANCHORS"),
    ("GOOGLE_", "GCLOUD_", "CLOUDSDK_"): ("PUBSUB_PROJECT", "BIGQUERY_PROJECT"),
    # libpq's own: the login of whoever started us.
    ("PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSERVICE"): (),
}
"""How variables begin that other libraries log in with, and the settings whose readers use those libraries."""
NO_CREDENTIALS: Final = frozenset({"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE"})


def settings_of(entry: DaemonEntry) -> frozenset[str]:
    """Every setting that a daemon goes by."""
    logins = [LOGIN_SETTINGS[role] for role in entry.roles]
    transport = TRANSPORT_SETTINGS if entry.processes[0].reads else ()
    # Dagster's programs serve no metrics.
    shared = [name for name in SHARED_SETTINGS if name != "METRICS_TOKEN" or entry not in DAGSTER]
    return frozenset((*shared, *logins, *transport, *entry.settings))


def secrets_of(entry: DaemonEntry) -> list[str]:
    """The settings with which a daemon opens something, in the order of the settings."""
    return [name for name in sensitive_setting_names() if name in settings_of(entry)]


def handed_to(entry: DaemonEntry, environment: Mapping[str, str]) -> dict[str, str]:
    """Of `environment`, what a process of this daemon is started with."""
    return handed_to_all((entry,), environment)


def handed_to_all(entries: Iterable[DaemonEntry], environment: Mapping[str, str]) -> dict[str, str]:
    """Of `environment`, what a process that these daemons share is started with: what any of them needs.

    A secret that is not for it is there, and empty: a `.env` in the working folder would fill it otherwise.
    """
    named: frozenset[str] = frozenset().union(*map(settings_of, entries))
    withheld = set(sensitive_setting_names()) - named
    return {
        name: unset_in_environment(name) if name in withheld else value
        for name, value in environment.items()
        if name in NO_CREDENTIALS or not _opens_what_is_not_for_it(name, named)
    }


def _opens_what_is_not_for_it(name: str, named: Iterable[str]) -> bool:
    return any(
        name.startswith(beginnings) and not set(readers) & set(named)
        for beginnings, readers in FOREIGN_CREDENTIALS.items()
    )
