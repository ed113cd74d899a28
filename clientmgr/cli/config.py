"""`clientmgr config`: the effective settings. `clientmgr migrate`: the control schema at its newest version."""

import typer

from clientmgr.audit.log import AuditLogger
from clientmgr.base.settings import load_settings
from clientmgr.cli.output import JsonOption, console, open_database, print_json, show_rows
from clientmgr.operations.migrations import migrate_database


def register(app: typer.Typer) -> None:
    app.command()(config)
    app.command()(migrate)


def config(as_json: JsonOption = False) -> None:
    """Print every setting with its effective value and meaning; secrets are hidden."""
    rows = [
        {"setting": name, "value": value, "meaning": meaning} for name, value, meaning in load_settings().effective()
    ]
    if as_json:
        print_json({row["setting"]: row["value"] for row in rows})
    else:
        columns = ["setting", "value", "meaning"]
        show_rows(rows, columns, as_json=False, empty="", wrapped={"value", "meaning"})


def migrate() -> None:
    """Bring the control schema to its newest version. `up` and `demo` do so by themselves."""
    database, settings = open_database()
    applied = migrate_database(database, audit=AuditLogger.from_settings(settings))
    console.print(f"{len(applied)} migrations applied" if applied else "nothing to apply")
