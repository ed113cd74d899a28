"""`clientmgr config`: the effective settings. `clientmgr migrate`: the control schema at its newest version."""

from typing import Annotated

import typer

from clientmgr.audit.log import AuditLogger
from clientmgr.base.logins import made_logins, write_urls
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


def migrate(
    logins: Annotated[
        bool,
        typer.Option(
            "--logins", help="Also give each role's login the password kept in DATA_DIR, and write their URLs there."
        ),
    ] = False,
) -> None:
    """Bring the control schema to its newest version, as its owner. `up` and `demo` do so by themselves."""
    database, settings = open_database(as_owner=True)
    applied = migrate_database(database, audit=AuditLogger.from_settings(settings))
    console.print(f"{len(applied)} migrations applied" if applied else "nothing to apply")
    if logins:
        file = settings.data_dir / "database_logins.env"
        write_urls(made_logins(settings, anew=True), file)
        console.print(f"logins made, their URLs are in {file}", soft_wrap=True)
