"""Alert rules and Grafana panels: PromQL, on metrics that there are, with labels that they have."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import REGISTRY

from clientmgr.contracts import daemons
from tests.deploy.files import (
    DEPLOY,
    ENVIRONMENT_FILES,
    ROOT,
    alert_rules,
    environment_of,
    grafana_dashboard,
    scrape_targets,
)
from tests.deploy.promql import asked_of
from tests.docs.links import anchors_of
from tools.docs.metric_names import Measured, collectors_of

TARGET_LABELS = {"job", "instance", "daemon"}
"""Prometheus adds them to whatever it scrapes (deploy/prometheus/prometheus.yml)."""

NOT_OURS = {
    "up": set(),
    # Of node_exporter.
    "node_filesystem_avail_bytes": {"fstype", "mountpoint", "device"},
    "node_filesystem_size_bytes": {"fstype", "mountpoint", "device"},
}
_TEMPLATE_LABEL = re.compile(r"\$labels\.(\w+)")
_LEGEND_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
# Grafana puts a duration in its place.
RATE_INTERVAL = "$__rate_interval"


def known_series() -> dict[str, set[str]]:
    """Every series of our metrics, and those of the client library about the process, with their labels."""
    known: dict[str, set[str]] = {name: set(labels) for name, labels in NOT_OURS.items()}
    for entry in daemons.ALL:
        for collector in collectors_of(entry):
            known |= {name: set(labels) for name, labels in Measured.of(collector).series().items()}
    for metric in REGISTRY.collect():
        if metric.name.startswith("process_"):
            known |= {sample.name: set(sample.labels) for sample in metric.samples}
    return known


KNOWN = known_series()
RULES = alert_rules()


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = grafana_dashboard()["panels"]
    return found


def panel_targets() -> Iterator[Any]:
    for panel in panels():
        for target in panel.get("targets", ()):
            yield pytest.param(target, id=f"{panel['title']} {target['refId']}")


def assert_metrics_are_there(expression: str) -> set[str]:
    """That all it asks for is there; returns the labels that its result may have."""
    asked = asked_of(expression)
    assert asked.series, f"{expression}: no metric in it"
    unknown = asked.series.keys() - KNOWN.keys()
    assert not unknown, f"{expression}: no such metric in the code: {unknown}"
    labels = set().union(*(KNOWN[name] for name in asked.series)) | TARGET_LABELS
    for name, chosen_by in asked.series.items():
        assert chosen_by <= KNOWN[name] | TARGET_LABELS, f"{expression}: {name} has no label {chosen_by - KNOWN[name]}"
    assert asked.grouped_by <= labels, f"{expression}: no such label: {asked.grouped_by - labels}"
    return asked.grouped_by or labels


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_asks_for_what_is_measured(rule: dict[str, Any]) -> None:
    labels = assert_metrics_are_there(rule["expr"])
    shown = set(_TEMPLATE_LABEL.findall(" ".join(rule["annotations"].values())))
    assert shown <= labels, f"the text shows labels that the result does not have: {shown - labels}"


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"]
    file, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor in anchors_of(ROOT / file), f"{file} has no heading {anchor!r}"


def test_no_two_alerts_have_one_name() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)


def test_what_must_never_go_unnoticed_has_an_alert() -> None:
    alarmed = set().union(*(asked_of(rule["expr"]).series for rule in RULES))
    assert alarmed >= {
        "up",
        "clientmgr_subscription_lag_seconds",
        "clientmgr_dead_letters",
        "clientmgr_audit_findings",
        "clientmgr_batch_work_done_timestamp_seconds",
        "processor_telemetry_stream_lost_total",
    }


@pytest.mark.parametrize("target", list(panel_targets()))
def test_a_panel_asks_for_what_is_measured(target: dict[str, Any]) -> None:
    labels = assert_metrics_are_there(target["expr"].replace(RATE_INTERVAL, "5m"))
    shown = set(_LEGEND_LABEL.findall(target["legendFormat"]))
    assert shown <= labels, f"the legend shows labels that the result does not have: {shown - labels}"


def test_every_metric_of_ours_is_on_a_panel_or_has_an_alert() -> None:
    """What nobody looks at need not be measured; a new metric has to be put somewhere."""
    expressions = [
        target["expr"].replace(RATE_INTERVAL, "5m") for panel in panels() for target in panel.get("targets", ())
    ]
    shown = set().union(*(asked_of(text).series for text in [*expressions, *(rule["expr"] for rule in RULES)]))
    collectors = [collector for entry in daemons.ALL for collector in collectors_of(entry)]
    unseen = {one.name for one in map(Measured.of, collectors) if not shown & one.series().keys()}
    assert unseen == {
        # For a look at one instance, by hand.
        "processor_live_broadcast_fix_age_ms",
        "processor_live_broadcast_malformed_records_total",
        "processor_live_device_event_map_devices",
        "processor_live_device_event_refresh_ms",
        "processor_live_device_event_refresh_failures_total",
    }


def test_the_dashboard_is_laid_out_as_grafana_wants_it() -> None:
    dashboard = grafana_dashboard()
    assert dashboard["uid"] == "client-manager"
    assert dashboard["schemaVersion"] >= 36
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["datasource"]
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        assert panel["type"] in ("row", "stat", "timeseries"), panel["title"]
        assert panel["title"]
        at = panel["gridPos"]
        assert at["x"] in range(25 - at["w"]), f"{panel['title']} does not fit in"
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, f"{panel['title']} covers another panel"
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            letters = [target["refId"] for target in panel["targets"]]
            assert letters == [chr(ord("A") + number) for number in range(len(letters))]
            assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
            assert panel["fieldConfig"]["defaults"]["unit"]


def test_what_is_scraped_is_what_the_units_serve() -> None:
    served = {
        environment_of(path)["METRICS_PORT"]: path.stem
        for path in ENVIRONMENT_FILES
        if "METRICS_PORT" in environment_of(path)
    }
    # The bridge runs only where there is something to bridge.
    assert scrape_targets() == {port: daemon for port, daemon in served.items() if daemon != "bridge"}


def test_the_example_configuration_takes_in_our_rules() -> None:
    assert "  - alerts.yml\n" in (DEPLOY / "prometheus" / "prometheus.yml").read_text()
