"""The manifests, held against Kubernetes' own schemas and against the code."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # it ships no types
import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from clientmgr.base.errors import SettingsError
from clientmgr.base.settings import Settings, load_settings, secret_setting_names
from clientmgr.contracts import daemons
from clientmgr.contracts.handing_out import secrets_of
from clientmgr.local.processes.programs import ROLLBACK_S, own_commands
from tests.cli.calling import Cli
from tests.deploy.files import DEPLOY, KUBERNETES, MANIFESTS, documents, environment_of, pod_templates
from tests.keys import TEST_KEY
from tools.deploy.secrets import kubernetes_secret

VERSIONS = ("1.30", "1.37")
"""The oldest that we want to run on, and the newest that the validator knows."""
NOT_APPLIED = {"secret.example.yaml", "bridge.yaml"}
PODS = [pytest.param(template, id=name) for name, template in pod_templates()]
CONTAINERS = [
    pytest.param(container, template, id=f"{name} {container['name']}")
    for name, template in pod_templates()
    for container in template["spec"]["containers"]
]


def configuration(path: str, key: str) -> dict[str, str]:
    document, *_ = documents(KUBERNETES / path)
    values: dict[str, str] = document[key]
    return values


CONFIG = configuration("config.yaml", "data")
FILES = {"client-manager-dashboard-users", "client-manager-gateway"}
"""Secrets that are files."""


def sample_secrets() -> dict[str, str]:
    """A secret for each setting, under the name that the manifests know it by."""
    secrets = {}
    for document in documents(KUBERNETES / "secret.example.yaml"):
        if document["metadata"]["name"] not in FILES:
            ((name, value),) = document["stringData"].items()
            assert document["metadata"]["name"] == kubernetes_secret(name)
            secrets[name] = value
    return secrets


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.name))
def test_a_manifest_is_what_kubernetes_takes(path: Path, version: str) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


def test_the_validator_would_find_a_mistake() -> None:
    (document, *_) = documents(KUBERNETES / "writer.yaml")
    document["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


def test_the_kustomization_names_every_manifest() -> None:
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    assert kustomization["resources"] == sorted({path.name for path in MANIFESTS} - NOT_APPLIED)
    assert [image["name"] for image in kustomization["images"]] == ["client-manager"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")
def test_kustomize_makes_something_valid_of_it() -> None:
    result = subprocess.run(["kubectl", "kustomize", KUBERNETES], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for document in yaml.safe_load_all(result.stdout):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
        assert document["kind"] == "Namespace" or document["metadata"]["namespace"] == "client-manager"


@pytest.mark.parametrize(("container", "template"), CONTAINERS)
def test_a_container_is_a_command_that_there_is(container: dict[str, Any], template: dict[str, Any]) -> None:
    assert container["image"] == "client-manager"
    assert "Usage: clientmgr" in Cli({}).ok(*container["args"], "--help").out


@pytest.mark.parametrize("template", PODS)
def test_a_pod_runs_as_nobody_and_gives_nothing_away(template: dict[str, Any]) -> None:
    spec = template["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False, "or DAGSTER_PORT would be a URL"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert writable == {str(Path(CONFIG["DATA_DIR"]).parent), "/tmp"}  # noqa: S108  # the pod's own
        assert container["resources"].keys() == {"requests", "limits"}


@pytest.mark.parametrize("template", PODS)
def test_a_pod_has_the_whole_time_to_drain(template: dict[str, Any]) -> None:
    spec = template["spec"]
    if spec.get("restartPolicy", "Always") == "Always":
        longest = max(float(CONFIG["SHUTDOWN_TIMEOUT_S"]), load_settings().shutdown_timeout_s) + ROLLBACK_S
        assert spec["terminationGracePeriodSeconds"] > longest


@pytest.mark.parametrize(("container", "template"), CONTAINERS)
def test_probes_ask_ports_that_are_served(container: dict[str, Any], template: dict[str, Any]) -> None:
    if template["spec"].get("restartPolicy", "Always") != "Always":
        return
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
    served = {
        "metrics": CONFIG["METRICS_PORT"],
        "websocket": CONFIG["LIVE_WS_PORT"],
        "grpc": CONFIG["PUBSUB_GATEWAY_PORT"],
        "ui": CONFIG["DAGSTER_PORT"],
        "http": CONFIG["DASHBOARD_PORT"],
        "intake": CONFIG["INTAKE_PORT"],
    }
    for name, port in ports.items():
        assert str(port) == served[name]
    for probe in ("startupProbe", "livenessProbe"):
        asked = container[probe]
        if "exec" in asked:
            assert "Usage: clientmgr" in Cli({}).ok(*asked["exec"]["command"][1:], "--help").out
        else:
            assert asked["httpGet"]["port"] in ports
            assert asked["httpGet"]["path"] in ("/healthz", "/server_info")
    if "metrics" in ports:
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
        annotations = template["metadata"]["annotations"]
        assert annotations == {"prometheus.io/scrape": "true", "prometheus.io/port": CONFIG["METRICS_PORT"]}


def test_a_daemon_s_probes_and_services_are_reached_from_outside_of_the_pod() -> None:
    hosts = {name: value for name, value in CONFIG.items() if name.endswith("_HOST")}
    assert hosts.keys() >= {"METRICS_HOST", "LIVE_WS_HOST", "PUBSUB_GATEWAY_HOST", "DAGSTER_HOST", "DASHBOARD_HOST"}
    assert set(hosts.values()) == {"0.0.0.0"}  # noqa: S104  # the pod's


@pytest.mark.parametrize(("host", "port"), [("LIVE_WS_HOST", "LIVE_WS_PORT"), ("DAGSTER_HOST", "DAGSTER_PORT")])
def test_the_dashboard_asks_services_that_there_are_whether_they_answer(host: str, port: str) -> None:
    (pod,) = [template for name, template in pod_templates() if name.endswith(": dashboard")]
    (container,) = pod["spec"]["containers"]
    own = {variable["name"]: variable["value"] for variable in container["env"]}
    served = {
        document["metadata"]["name"]: {str(one["port"]) for one in document["spec"]["ports"]}
        for path in MANIFESTS
        for document in documents(path)
        if document["kind"] == "Service"
    }
    assert CONFIG[port] in served[own[host]]


def test_browsers_are_sent_to_addresses_that_somebody_has_to_fill_in() -> None:
    for name in ("DASHBOARD_URL", "LIVE_URL", "DAGSTER_URL"):
        assert CONFIG[name].startswith("https://"), "else they would be sent to a Service's name, or to themselves"


def test_whatever_up_runs_has_a_deployment() -> None:
    started = [
        tuple(container["args"]) for _, template in pod_templates() for container in template["spec"]["containers"]
    ]
    for command in own_commands():
        assert any(arguments[: len(command.arguments)] == command.arguments for arguments in started), command.name
    assert {entry.arguments for entry in daemons.DAGSTER} <= set(started)


def test_every_setting_in_the_manifests_is_one_of_ours_and_no_secret_is_in_the_open() -> None:
    secrets = sample_secrets()
    for name in [*CONFIG, *secrets]:
        assert name.lower() in Settings.model_fields, name
    assert not secret_setting_names() & CONFIG.keys()
    assert "DATABASE_URL" not in CONFIG
    filled_in = {
        name: TEST_KEY if name in secret_setting_names() else value.replace("change-me", "Zf9-own")
        for name, value in secrets.items()
    }
    load_settings(**{name.lower(): value for name, value in {**CONFIG, **filled_in}.items()})


def test_nothing_starts_with_the_secrets_of_the_examples() -> None:
    secrets = sample_secrets()
    assert secrets.keys() >= {"AUDIT_HASH_KEY", "LIVE_TOKEN_KEY", "DASHBOARD_SESSION_KEY", "METRICS_TOKEN"}
    for given in (secrets, environment_of(DEPLOY / "systemd/env/writer.env")):
        placeholders = {name: value for name, value in given.items() if "change-me" in value}
        assert "AUDIT_HASH_KEY" in placeholders
        for name, value in placeholders.items():
            with pytest.raises(SettingsError, match=f"^{name}: "):
                load_settings(**{name.lower(): value})


@pytest.mark.parametrize(("container", "template"), CONTAINERS)
def test_a_container_gets_the_secrets_that_its_entry_names_and_the_owner_s_login_only_to_migrate(
    container: dict[str, Any], template: dict[str, Any]
) -> None:
    arguments = tuple(container["args"])
    expected = ["DATABASE_URL", "AUDIT_HASH_KEY"]
    if arguments != ("migrate",):
        (expected,) = [
            secrets_of(entry)
            for entry in (*daemons.ALL, *daemons.DAGSTER)
            for process in entry.processes
            if arguments == (*process.arguments, *process.spelled_out)
        ]
    given = [source["secretRef"]["name"] for source in container["envFrom"] if "secretRef" in source]
    assert given == [kubernetes_secret(name) for name in expected]


def test_what_runs_twice_is_not_taken_away_all_at_once() -> None:
    for path in MANIFESTS:
        found = {document["kind"]: document for document in documents(path)}
        if found.get("Deployment", {}).get("spec", {}).get("replicas", 1) > 1:
            budget = found["PodDisruptionBudget"]["spec"]
            assert budget["selector"] == found["Deployment"]["spec"]["selector"], path.name
            assert budget["maxUnavailable"] == 1


SPARK = KUBERNETES / "spark-on-kubernetes"


def test_spark_on_kubernetes_may_start_executors_and_see_no_secret() -> None:
    (kustomization,) = documents(SPARK / "kustomization.yaml")
    named = [*kustomization["resources"], *(patch["path"] for patch in kustomization["patches"])]
    assert sorted(named) == sorted(path.name for path in SPARK.glob("*.yaml") if path.name != "kustomization.yaml")
    found = {}
    for name in kustomization["resources"]:
        for document in documents(SPARK / name):
            for version in VERSIONS:
                kubernetes_validate.validate(document, version, strict=True)
            found[document["kind"]] = document
    account = found["ServiceAccount"]["metadata"]["name"]
    assert found["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    (rule,) = found["Role"]["rules"]
    # What Spark's driver asks Kubernetes for (docs: "Running Spark on Kubernetes", RBAC).
    assert set(rule["resources"]) == {"pods", "services", "configmaps", "persistentvolumeclaims"}
    assert set(rule["verbs"]) == {"create", "get", "list", "watch", "patch", "delete", "deletecollection"}


def test_only_dagster_s_pod_gets_the_driver_s_account() -> None:
    (patch,) = documents(SPARK / "dagster-patch.yaml")
    (base,) = [one for one in documents(KUBERNETES / "dagster.yaml") if one["kind"] == "Deployment"]
    assert patch["metadata"]["name"] == base["metadata"]["name"]
    assert patch["spec"]["template"]["spec"] == {
        "serviceAccountName": "client-manager-spark",
        "automountServiceAccountToken": True,
    }
    (service,) = documents(SPARK / "driver.yaml")
    assert service["spec"]["selector"].items() <= base["spec"]["template"]["metadata"]["labels"].items()
