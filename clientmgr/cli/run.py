"""`clientmgr run …`: a command for each daemon of the registry (clientmgr/contracts/daemons.py).

A command imports its daemon when it is called: that takes longer than most commands run.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Annotated, Any, Literal

import typer

from clientmgr.base.data_folder import attach
from clientmgr.base.database import Role
from clientmgr.base.settings import load_settings
from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry, Option
from clientmgr.operations.heartbeats import beating

app = typer.Typer(
    help="Run a daemon in the foreground. SIGTERM and Ctrl-C let it finish what it has in hand.", no_args_is_help=True
)


def command_of(entry: DaemonEntry) -> Callable[..., None]:
    """A function with the daemon's options as its parameters: typer reads them from the signature."""

    def command(**options: Any) -> None:
        run = load(entry.run)
        settings = attach(load_settings(), with_key="AUDIT_HASH_KEY" in entry.settings)
        # One that may only read gives no sign of life; those are asked on their port.
        alive = beating(settings, process_name(entry, options)) if Role.WRITER in entry.roles else nullcontext()
        with alive:
            code = run(settings, **options)
        raise typer.Exit(code)

    command.__signature__ = inspect.Signature([parameter_of(option) for option in entry.options])  # type: ignore[attr-defined]
    return command


def process_name(entry: DaemonEntry, options: Mapping[str, Any]) -> str:
    """Which of the entry's processes this is: the one whose arguments have these options."""
    given = {str(value) for value in options.values()}
    found = (one.name for one in entry.processes if given.issuperset(one.arguments[2:][1::2]))
    return next(found, entry.name)


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
