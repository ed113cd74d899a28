"""The generated parts of docs/daemons.md, of each daemon's page and of the instructions to enable them all."""

from collections.abc import Sequence
from typing import Final

from clientmgr.base.settings import Settings
from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry
from tools.deploy.systemd import units_to_enable
from tools.docs.daemon_facts import command, publishes_to, reads_from, subscriptions
from tools.docs.markdown import code, fenced, table
from tools.docs.metric_names import Collector, Measured, collectors_of
from tools.docs.settings_page import default

NEW_PAGE: Final = """\
# {name}

{help}

<!-- generated: facts -->
<!-- end -->

## When something fails

## Scaling

## Settings

Besides those that [all daemons share](../daemons.md#settings-that-all-share):

<!-- generated: settings -->
<!-- end -->

## Metrics

<!-- generated: metrics -->
<!-- end -->
"""
"""How the page of a new daemon begins; the words are for its author to find."""


def index_blocks() -> dict[str, str]:
    rows = [
        (
            f"[{entry.name}](daemons/{entry.name}.md)",
            entry.does,
            _names(reads_from(entry)) or "–",
            _names(publishes_to(entry)) or "–",
        )
        for entry in daemons.ALL
    ]
    ports = [
        (f"`METRICS_PORT`{f' + {number}' if number else ''}", process.name)
        for number, process in enumerate(daemons.started())
    ]
    return {
        "index": table(("daemon", "does", "reads", "publishes to"), rows),
        "shared settings": _settings(daemons.SHARED_SETTINGS),
        "transport settings": _settings(daemons.TRANSPORT_SETTINGS),
        "ports": table(("port", "process"), ports),
    }


def page_blocks(entry: DaemonEntry) -> dict[str, str]:
    subscribed = subscriptions(entry)
    rows = [
        ("command", code(command(entry))),
        ("reads", _names(reads_from(entry)) or "–"),
        *([("subscription", code(*subscribed))] if subscribed else []),
        ("publishes to", _names(publishes_to(entry)) or "–"),
        ("database role", code(*entry.roles)),
        ("`/metrics`, `/healthz`", "on `METRICS_PORT`"),
    ]
    return {
        "facts": table(("", ""), rows),
        "settings": _settings(entry.settings),
        "metrics": _metrics(collectors_of(entry)),
    }


def enable_block() -> dict[str, str]:
    """What docs/operating.md tells to enable under systemd."""
    return {"enable": fenced("systemctl enable " + " \\\n  ".join(units_to_enable()), "")}


def _settings(names: Sequence[str]) -> str:
    rows = [
        (code(name), default(name.lower()), Settings.model_fields[name.lower()].description or "") for name in names
    ]
    return table(("variable", "default", "meaning"), rows)


def _metrics(collectors: Sequence[Collector]) -> str:
    rows = []
    for measured in map(Measured.of, collectors):
        rows.append((code(measured.name), measured.kind, code(*measured.labels) or "–", measured.help))
    return table(("metric", "kind", "labels", "tells"), rows)


def _names(names: Sequence[str]) -> str:
    """Topics as code; what is a sentence stays one."""
    return ", ".join(name if " " in name else code(name) for name in names)
