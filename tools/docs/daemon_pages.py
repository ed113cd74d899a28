"""The generated parts of docs/daemons.md and of each daemon's page."""

from collections.abc import Sequence

from clientmgr.base.settings import Settings
from clientmgr.local.processes.programs import own_commands
from tools.docs.daemon_facts import ALL, SHARED_SETTINGS, DaemonFacts
from tools.docs.markdown import code, table
from tools.docs.metric_names import Collector, Measured
from tools.docs.settings_page import default


def pages() -> Sequence[DaemonFacts]:
    return ALL


def index_blocks() -> dict[str, str]:
    rows = [
        (
            f"[{facts.name}](daemons/{facts.name}.md)",
            facts.does,
            _names(facts.reads_from()) or "–",
            _names(facts.publishes_to()) or "–",
        )
        for facts in ALL
    ]
    ports = [
        (f"`METRICS_PORT`{f' + {number}' if number else ''}", command.name)
        for number, command in enumerate(own_commands())
    ]
    return {
        "index": table(("daemon", "does", "reads", "publishes to"), rows),
        "shared settings": _settings(SHARED_SETTINGS),
        "ports": table(("port", "process"), ports),
    }


def page_blocks(facts: DaemonFacts) -> dict[str, str]:
    subscriptions = facts.subscriptions()
    rows = [
        ("command", code(facts.command)),
        ("reads", _names(facts.reads_from()) or "–"),
        *([("subscription", code(*subscriptions))] if subscriptions else []),
        ("publishes to", _names(facts.publishes_to()) or "–"),
        ("`/metrics`, `/healthz`", f"on {code(facts.port_setting)}"),
    ]
    return {"facts": table(("", ""), rows), "settings": _settings(facts.settings), "metrics": _metrics(facts.metrics)}


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
