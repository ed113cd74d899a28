"""`clientmgr run …`: a command for each daemon of the registry (clientmgr/contracts/daemons.py).

A command imports its daemon when it is called: that takes longer than most commands run.
"""

import importlib
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from clientmgr.base.data_folder import attach
from clientmgr.base.settings import load_settings
from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry, Option

app = typer.Typer(
    help="Run a daemon in the foreground. SIGTERM and Ctrl-C let it finish what it has in hand.", no_args_is_help=True
)


def command_of(entry: DaemonEntry) -> Callable[..., None]:
    """A function with the daemon's options as its parameters: typer reads them from the signature."""

    def command(**options: Any) -> None:
        run = load(entry.run)
        settings = attach(load_settings(), with_key="AUDIT_HASH_KEY" in entry.settings)
        raise typer.Exit(run(settings, **options))

    command.__signature__ = inspect.Signature([parameter_of(option) for option in entry.options])  # type: ignore[attr-defined]
    return command


def parameter_of(option: Option) -> inspect.Parameter:
    must_be_given = option.default is None
    value: Any = type(option.default) if not must_be_given else str
    if option.choices:
        value = Literal[option.choices]
    described = typer.Option(*option.flags, help=option.help, show_default=not must_be_given)
    return inspect.Parameter(
        option.parameter,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[value, described],
        default=inspect.Parameter.empty if must_be_given else option.default,
    )


def load(name: str) -> Callable[..., int]:
    """What a name like `streaming.writer:DAEMON.run` stands for."""
    module, _, attributes = name.partition(":")
    found: Any = importlib.import_module(module)
    for attribute in attributes.split("."):
        found = getattr(found, attribute)
    run: Callable[..., int] = found
    return run


for _entry in daemons.ALL:
    if _entry.run:
        app.command(_entry.name, help=_entry.help)(command_of(_entry))
