"""The commands, each with the module that it is in, which is imported when the command is wanted.

Importing them all takes longer than most of them run, so `clientmgr --help` goes by this list alone. A module has
`app`, a group of commands, or `register(app)`, which adds its commands.
"""

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import typer
from typer.core import TyperGroup


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is, and how its help begins."""

    module: str
    help: str


COMMANDS: Final = {
    "up": Entry("stack", "Run everything in the foreground, with embedded servers where no URL is set."),
    "demo": Entry("stack", "Run everything as `up` does, with three tenants and devices that never rest."),
    "config": Entry("config", "Print every setting that is in effect, with its meaning; secrets are hidden."),
    "migrate": Entry("config", "Bring the control schema to its newest version, as its owner."),
    "tenants": Entry("tenants", "Tenants: list, activate, migrate, delete, reconcile, prove, place."),
    "audit": Entry("audit", "The audit log: list, verify and anchor."),
    "dashboard": Entry("dashboard", "The dashboard: make users for it."),
    "device-mapper": Entry("device_mapper", "The device mapper: explain what a message becomes."),
    "live": Entry("live", "Live positions: tokens for watchers, and a demo fleet."),
    "run": Entry("run", "Run a daemon in the foreground: one, or several in one process."),
    "publish": Entry("messages", "Publish a message, or one for each line of a file."),
    "tail": Entry("messages", "Print the messages of a topic as they come."),
    "topics": Entry("topics", "Topics, their subscriptions and how far behind these are; resize, trim, seek, pause."),
    "failures": Entry("failures", "Messages that failed, wherever they lie: list, show, edit, replay, drop."),
    "erasure": Entry("erasure", "Erasure: sweep what is deleted out of every place, and see when."),
    "pubsub-gateway": Entry("services", "Speak Google's Pub/Sub protocol on the PostgreSQL log: for any client of it."),
    "bridge": Entry("services", "Copy Pub/Sub subscriptions into topics of the PostgreSQL log, each message once."),
    "dagster": Entry("dagster", "Dagster's code server, daemon and webserver in the foreground, each by itself."),
    "load": Entry("load", "Publish what devices tell in their lives: late, twice, out of order, malformed."),
    "devices": Entry("devices", "Devices: show one, find some, import and export them."),
    "contacts": Entry("contacts", "Contacts: erase one, export what is kept, prove that nothing is left."),
    "flippers": Entry("flippers", "Switches for running daemons: list, set, unset."),
    "migration": Entry("migration", "Customers on their way from DynamoDB to PostgreSQL."),
    "applications": Entry("applications", "What is configured for an application: topics, origins, language."),
    "intake-keys": Entry("intake_keys", "Keys of the HTTP intake: create, list, rotate, revoke."),
}


OLD_NAMES: Final = {"dlq": "failures"}
"""They work, and no help shows them."""


class Commands(TyperGroup):
    """The group that `clientmgr` is."""

    def list_commands(self, _ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        name = OLD_NAMES.get(cmd_name, cmd_name)
        if name in COMMANDS and name not in self.commands:
            self.commands.update(_load(COMMANDS[name].module))
        return self.commands.get(name)

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


def _load(module: str) -> Iterator[tuple[str, Any]]:
    """The commands of a module by name."""
    imported = importlib.import_module(f"clientmgr.cli.{module}")
    # rich's boxes would be most of what a help text takes.
    loading = typer.Typer(rich_markup_mode=None)
    if hasattr(imported, "register"):
        imported.register(loading)
    else:
        (name,) = [name for name, entry in COMMANDS.items() if entry.module == module]
        loading.add_typer(imported.app, name=name)

    @loading.callback()
    def nothing() -> None:
        """So that one command alone is a group too."""

    commands = typer.main.get_group(loading).commands
    for command in commands.values():
        _say_whole_sentences(command)
    yield from commands.items()


def _say_whole_sentences(command: Any) -> None:
    """In the list of a group's commands. Typer would cut them off in the middle."""
    for below in getattr(command, "commands", {}).values():
        first = (below.help or "").partition("\n\n")[0]
        below.short_help = re.sub(r"\s+", " ", first).strip()
        _say_whole_sentences(below)
