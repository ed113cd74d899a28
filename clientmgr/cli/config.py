"""`clientmgr config`: the effective settings. `clientmgr migrate`: the control schema at its newest version."""

import contextlib
from typing import Annotated

import typer

from clientmgr.base.data_folder import attach
from clientmgr.base.errors import SettingsError
from clientmgr.base.hiding import json_value
from clientmgr.base.logins import made_logins, write_urls
from clientmgr.base.settings import load_settings
from clientmgr.base.wording import plural
from clientmgr.cli.output import JsonOption, console, open_database, print_json, show_rows


def register(app: typer.Typer) -> None:
    app.command()(config)
    app.command()(migrate)


def config(as_json: JsonOption = False) -> None:
    """Print every setting that is in effect, with its meaning; secrets are hidden.

    Where an embedded stack runs in DATA_DIR, its URLs are among them.
    """
    settings = load_settings()
    # Where nothing runs, the settings alone are in effect.
    with contextlib.suppress(SettingsError):
        settings = attach(settings, as_owner=True, with_key=False)
    if as_json:
        print_json({name: value for name, value, _ in settings.effective(shown=json_value)})
    else:
        rows = [{"setting": name, "value": value, "meaning": meaning} for name, value, meaning in settings.effective()]
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
    # Slow to import, and `config` needs none of it.
    from clientmgr.audit.log import AuditLogger
    from clientmgr.operations.migrations import migrate_database

    database, settings = open_database(as_owner=True)
    applied = migrate_database(database, audit=AuditLogger.from_settings(settings), citus=settings.citus)
    console.print(f"{plural(len(applied), 'migration')} applied" if applied else "nothing to apply")
    if logins:
        file = settings.data_dir / "database_logins.env"
        write_urls(made_logins(settings, anew=True), file)
        console.print(f"logins made, their URLs are in {file}", soft_wrap=True)
