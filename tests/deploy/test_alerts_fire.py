"""Each alert fires when it should and not before, and says what it should: Prometheus's own `promtool test rules`."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.alert_cases import CASES, Case
from tests.deploy.files import DEPLOY, alert_rules
from tests.deploy.prometheus_programs import find, missing

RULES: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in alert_rules()}


def test_every_alert_has_a_case() -> None:
    assert CASES.keys() == RULES.keys()


@pytest.mark.skipif(find("promtool") is None, reason=missing("promtool"))
def test_each_alert_fires_and_not_before(tmp_path: Path) -> None:
    file = tmp_path / "cases.yml"
    tests = [as_test(name, case) for name, cases in CASES.items() for case in cases]
    file.write_text(
        json.dumps(
            {
                "rule_files": [str(DEPLOY / "prometheus" / "alerts.yml")],
                "evaluation_interval": "1m",
                "tests": tests,
            }
        )
    )
    done = subprocess.run(
        [str(find("promtool")), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def as_test(name: str, case: Case) -> dict[str, Any]:
    rule = RULES[name]
    fired = {
        "exp_labels": {"severity": rule["labels"]["severity"], **case.labels},
        "exp_annotations": {"summary": case.summary, "runbook": rule["annotations"]["runbook"]},
    }
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "alert_rule_test": [
            {"eval_time": case.not_yet, "alertname": name, "exp_alerts": []},
            {"eval_time": case.at, "alertname": name, "exp_alerts": [fired]},
        ],
    }
