"""`clientmgr …`: one module per group of commands. Output for people by default, JSON where `--json` is given.

Exit codes: 0 done; 1 the work failed, in part or whole, or a check found something; 2 wrong usage, input or setting;
3 a server can't be reached or started; 130 interrupted.
"""

import os
import sys
from typing import Annotated

import typer

from clientmgr.cli.commands import Commands

EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="clientmgr",
    cls=Commands,
    help="Client Manager: device data on a multi-tenant push platform, from first registration to proven deletion.",
    epilog="Exit codes: 0 done, 1 failed or something was found, 2 wrong usage or setting, 3 a server is not there.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
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


def main() -> None:
    """Run a command; an error of ours is a sentence on standard error and an exit code, not a traceback."""
    try:
        try:
            app()
        finally:
            # Now, while a reader that has gone away is an error that we can handle.
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output, `head` for example, has seen enough. What is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except ModuleNotFoundError:
        raise  # clientmgr/__main__.py says what to install
    except Exception as error:  # noqa: BLE001  # judged in one place; what nobody foresaw is raised again
        from clientmgr.cli.endings import end_with

        end_with(error)
