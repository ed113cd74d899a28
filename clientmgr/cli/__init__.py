"""`clientmgr …`: one module per group of commands. Output for people by default, JSON where `--json` is given.

Exit codes: 0 done; 1 the work failed, in part or whole, or a check found something; 2 wrong usage, input or setting;
3 a server can't be reached or started; 130 interrupted.
"""

import os
import re
import sys
from typing import Annotated

import psycopg
import typer

from clientmgr.base.errors import ClientManagerError, EmbeddedServerError, InvalidInputError, SettingsError
from clientmgr.cli import (
    applications,
    audit,
    check_proof,
    config,
    contacts,
    dagster,
    dashboard,
    device_import,
    device_mapper,
    devices,
    erasure,
    failures,
    flippers,
    intake_keys,
    live,
    load,
    messages,
    migration,
    run,
    services,
    stack,
    tenants,
    topics,
)
from clientmgr.cli.output import fail

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="clientmgr",
    help="Client Manager: device data on a multi-tenant push platform, from first registration to proven deletion.",
    epilog="Exit codes: 0 done, 1 failed or something was found, 2 wrong usage or setting, 3 a server is not there.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"clientmgr {version('clientmgr')}")
        raise typer.Exit


@app.callback()
def all_commands(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that stand before any command."""


stack.register(app)
config.register(app)
app.add_typer(tenants.app, name="tenants")
app.add_typer(audit.app, name="audit")
check_proof.register(audit.app)
app.add_typer(dashboard.app, name="dashboard")
app.add_typer(device_mapper.app, name="device-mapper")
app.add_typer(live.app, name="live")
app.add_typer(run.app, name="run")
messages.register(app)
app.add_typer(topics.app, name="topics")
app.add_typer(failures.app, name="failures")
# Its old name. A number alone is a dead letter's id, as it was there.
app.add_typer(failures.app, name="dlq", hidden=True)
app.add_typer(erasure.app, name="erasure")
services.register(app)
app.add_typer(dagster.app, name="dagster")
load.register(app)
device_import.register(devices.app)
app.add_typer(devices.app, name="devices")
app.add_typer(contacts.app, name="contacts")
app.add_typer(flippers.app, name="flippers")
app.add_typer(migration.app, name="migration")
app.add_typer(applications.app, name="applications")
app.add_typer(intake_keys.app, name="intake-keys")


def main() -> None:
    """Run a command; an error of ours is a sentence on standard error and an exit code, not a traceback."""
    try:
        try:
            app()
        finally:
            # Now, while a reader that has gone away is an error that we can handle.
            sys.stdout.flush()
    except (InvalidInputError, SettingsError) as error:
        fail(str(error), EXIT_USAGE)
    except EmbeddedServerError as error:
        fail(str(error), EXIT_UNREACHABLE)
    except ClientManagerError as error:
        fail(str(error), EXIT_FAILED)
    except psycopg.Error as error:
        if _control_schema_is_missing(error):
            fail(f"{_first_line(error)}: is the control schema there? `clientmgr migrate` makes it", EXIT_FAILED)
        unreachable = isinstance(error, psycopg.OperationalError)
        fail(f"PostgreSQL: {_first_line(error)}", EXIT_UNREACHABLE if unreachable else EXIT_FAILED)
    except BrokenPipeError:
        # Whoever read our output, `head` for example, has seen enough. What is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except OSError as error:
        fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _control_schema_is_missing(error: psycopg.Error) -> bool:
    if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)):
        return True
    # Our roles come with the control schema. A refused log-in carries no SQLSTATE: only its text tells.
    return re.search(r'role "clientmgr_\w+" (does not exist|is not permitted to log in)', str(error)) is not None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
