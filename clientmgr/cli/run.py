"""`clientmgr run …`: a command for each daemon of the registry (clientmgr/contracts/daemons.py); several may be named.

A command imports its daemon when it is called: that takes longer than most commands run.
"""

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from clientmgr.base.daemon_process import DaemonWork, run_as_process
from clientmgr.base.data_folder import attach
from clientmgr.base.database import Role
from clientmgr.base.settings import load_settings
from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry, Option
from clientmgr.operations.heartbeats import beating


@dataclass(frozen=True)
class Chosen:
    """A daemon that the command line names, with the options that were given."""

    entry: DaemonEntry
    options: Mapping[str, Any]

    @property
    def process(self) -> str:
        """Which of the entry's processes this is: the one whose arguments have these options."""
        given = {str(value) for value in self.options.values()}
        found = (one.name for one in self.entry.processes if given.issuperset(one.arguments[2:][1::2]))
        return next(found, self.entry.name)


def run_all(chosen: Sequence[Chosen]) -> None:
    """Run what the command line names, each with its options."""
    settings = attach(load_settings(), with_key=any("AUDIT_HASH_KEY" in one.entry.settings for one in chosen))
    works = [load(one.entry.run)(settings, **one.options) for one in chosen]
    # One that may only read gives no sign of life; those are asked on their port.
    with beating(settings, *(one.process for one in chosen if Role.WRITER in one.entry.roles)):
        code = run_as_process(settings, works)
    raise typer.Exit(code)


class Daemons(TyperGroup):
    """A group of which several commands may be named, each with its options behind it."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["NAME [OPTIONS] [NAME [OPTIONS]]..."]

    def invoke(self, ctx: Any) -> None:
        words = [*ctx._protected_args, *ctx.args]
        if not words:
            super().invoke(ctx)  # which says so
        ctx.args, ctx._protected_args = [], []
        chosen = []
        with ctx:
            while words:
                name, command, words = self.resolve_command(ctx, words)
                if command is None:
                    raise LookupError(name)  # never: it refuses a name that it does not know
                own, words = _until_next_name(words, daemons.entry(str(name)), self.commands)
                with command.make_context(name, own, parent=ctx) as context:
                    chosen.append(command.invoke(context))
            run_all(chosen)


def _until_next_name(words: Sequence[str], entry: DaemonEntry, names: Collection[str]) -> tuple[list[str], list[str]]:
    """The words that belong to a daemon, and those from the next daemon's name on."""
    with_value = {flag for option in entry.options if not isinstance(option.default, bool) for flag in option.flags}
    for number, word in enumerate(words):
        is_value = number and words[number - 1] in with_value
        if word in names and not is_value:
            return list(words[:number]), list(words[number:])
    return list(words), []


app = typer.Typer(
    cls=Daemons,
    help="Run a daemon in the foreground. SIGTERM and Ctrl-C let it finish what it has in hand.\n\n"
    "Several run in one process, each with the options behind its name: they are stopped, and if one fails "
    "restarted, as one.\n\nclientmgr run writer republisher device-mapper --type tx",
    no_args_is_help=True,
)


def command_of(entry: DaemonEntry) -> Callable[..., Chosen]:
    """A function with the daemon's options as its parameters: typer reads them from the signature."""

    def command(**options: Any) -> Chosen:
        return Chosen(entry, options)

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


def load(name: str) -> Callable[..., DaemonWork]:
    """What a name like `streaming.writer:DAEMON.work` stands for."""
    module, _, attributes = name.partition(":")
    found: Any = importlib.import_module(module)
    for attribute in attributes.split("."):
        found = getattr(found, attribute)
    start: Callable[..., DaemonWork] = found
    return start


for _entry in daemons.ALL:
    if _entry.run:
        app.command(_entry.name, help=_entry.help)(command_of(_entry))
