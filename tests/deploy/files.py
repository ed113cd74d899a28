"""What is in deploy/, parsed once: units, manifests, rules, panels."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]  # it ships no types

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DEPLOY: Final = ROOT / "deploy"
SYSTEMD: Final = DEPLOY / "systemd"
KUBERNETES: Final = DEPLOY / "kubernetes"

UNITS: Final = sorted([*SYSTEMD.glob("*.service"), *SYSTEMD.glob("*.target")])
SERVICES: Final = [unit for unit in UNITS if unit.suffix == ".service"]
ENVIRONMENT_FILES: Final = sorted((SYSTEMD / "env").glob("*.env"))
MANIFESTS: Final = sorted(path for path in KUBERNETES.glob("*.yaml") if path.name != "kustomization.yaml")

_SECTION = re.compile(r"\[(\w+)\]")


def parse_unit(text: str) -> dict[str, dict[str, list[str]]]:
    """A unit's settings by section and name; whatever is none of a comment, a section and a setting is an error."""
    sections: dict[str, dict[str, list[str]]] = {}
    current: dict[str, list[str]] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith(("#", ";")):
            continue
        if section := _SECTION.fullmatch(line):
            assert section[1] not in sections, f"line {number}: section {section[1]} stands there twice"
            current = sections[section[1]] = {}
            continue
        name, equals, value = line.partition("=")
        assert equals, f"line {number}: expected NAME=value, got {line!r}"
        assert name.isidentifier(), f"line {number}: expected a name, got {name!r}"
        assert current is not None, f"line {number}: a setting outside of any section"
        current.setdefault(name, []).append(value)
    return sections


def environment_of(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def pod_templates() -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and name, pod spec) of everything that runs pods."""
    for path in MANIFESTS:
        for document in documents(path):
            if document["kind"] in ("Deployment", "Job"):
                yield f"{path.name}: {document['metadata']['name']}", document["spec"]["template"]


def alert_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def scrape_targets() -> dict[str, str]:
    """The daemon that is scraped at each port."""
    (job,) = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    return {config["targets"][0].rpartition(":")[2]: config["labels"]["daemon"] for config in job["static_configs"]}


def grafana_dashboard() -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads((DEPLOY / "grafana" / "client-manager.json").read_text())
    return dashboard
