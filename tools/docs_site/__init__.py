"""The documentation as a site to search: which pages, in which order. `python -m tools.docs_site` makes it.

Every page has a place here: one without is an error.
"""

from typing import Final

HOME: Final = "index.md"
"""README.md, as the site calls it."""

NAVIGATION: Final[dict[str, tuple[str, ...]]] = {
    "Start": (HOME, "docs/glossary.md", "docs/architecture.md", "docs/commands.md", "CHANGELOG.md"),
    "Operate": (
        "docs/operating.md",
        "docs/scaling.md",
        "docs/citus.md",
        "docs/dashboard.md",
        "docs/settings.md",
        "docs/daemons.md",
        "docs/daemons/*.md",
        "docs/tenant_lifecycle.md",
        "docs/legacy_migration.md",
        "docs/benchmarks.md",
    ),
    "Messages": (
        "docs/messages.md",
        "docs/message_catalogue.md",
        "docs/device_mapper.md",
        "docs/intake.md",
        "docs/import_export.md",
        "docs/live.md",
        "docs/pubsub.md",
        "docs/library.md",
    ),
    "Batch work": ("docs/dagster.md", "docs/spark_elsewhere.md"),
    "Security and erasure": ("SECURITY.md", "docs/security.md", "docs/contacts.md", "docs/erasure.md"),
    "Contribute": ("CONTRIBUTING.md", "docs/how_to.md", "docs/decisions/README.md", "docs/decisions/*.md"),
}
