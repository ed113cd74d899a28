"""`clientmgr dashboard …`: users of the dashboard. The dashboard itself is `clientmgr run dashboard`."""

import sys
from typing import Annotated, Literal

import typer

app = typer.Typer(help="The dashboard: make users for it.", no_args_is_help=True)


@app.callback()
def dashboard() -> None:
    """The dashboard: make users for it."""


@app.command()
def user(
    name: Annotated[str, typer.Argument(help="What they sign in as.", show_default=False)],
    role: Annotated[
        Literal["viewer", "operator"], typer.Option(help="viewer: look. operator: act as well.")
    ] = "viewer",
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input instead of asking.")
    ] = False,
) -> None:
    """Print a line for DASHBOARD_USERS_FILE. The password can't be read from it."""
    from clientmgr_dashboard.access.users import Role, user_line

    if password_stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    sys.stdout.write(user_line(name, Role(role), password) + "\n")
