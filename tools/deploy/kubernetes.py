"""deploy/kubernetes: a manifest for each process, alike but for what the registry says of its daemon."""

import textwrap
from string import Template
from typing import Final

from clientmgr.base.settings import Settings
from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry, Listening, Process
from tools.deploy.ports import FIRST_PORT
from tools.deploy.secrets import secret_references

WRITTEN_BY_HAND: Final = (
    "config.yaml",
    "dagster.yaml",
    "migrate.yaml",
    "namespace.yaml",
    "network-policy.yaml",
    "service-account.yaml",
)
"""Manifests that are of no daemon, or of Dagster."""

DEPLOYMENT: Final = Template("""\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: $name
  labels:
    app.kubernetes.io/name: client-manager
    app.kubernetes.io/component: $name
spec:
  replicas: $replicas
  selector:
    matchLabels:
      app.kubernetes.io/name: client-manager
      app.kubernetes.io/component: $name
  template:
    metadata:
      labels:
        app.kubernetes.io/name: client-manager
        app.kubernetes.io/component: $name
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "$metrics_port"
    spec:
      serviceAccountName: client-manager
      automountServiceAccountToken: false
      # Kubernetes would set DAGSTER_PORT and PUBSUB_GATEWAY_PORT, after its services, to what is no port.
      enableServiceLinks: false
      # More than SHUTDOWN_TIMEOUT_S, and a moment to roll back what was not finished.
      terminationGracePeriodSeconds: 30
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        seccompProfile:
          type: RuntimeDefault
$spread\
      containers:
        - name: $name
          image: client-manager
          args: [$arguments]
          envFrom:
            - configMapRef: {name: client-manager}
$secrets\
$environment\
          ports:
            - {name: metrics, containerPort: $metrics_port}
$own_port\
          startupProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
$readiness\
            periodSeconds: 10
            timeoutSeconds: 5
          resources:
            requests: {cpu: $cpu, memory: $memory}
            limits: {memory: $memory_limit}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          volumeMounts:
            - {name: data, mountPath: /var/lib/client-manager}
            - {name: tmp, mountPath: /tmp}
$mounts\
      volumes:
        - name: data
          emptyDir: {}
        - name: tmp
          emptyDir: {}
$volumes\
""")

SPREAD: Final = Template("""\
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: client-manager
              app.kubernetes.io/component: $name
""")

READY: Final = """\
            httpGet: {path: /healthz, port: metrics}
"""

READY_ON_ITS_OWN_PORT: Final = Template("""\
            # An error here: it can't serve for the moment and gets no new connections. A restart would not help.
            httpGet: {path: $path, port: $port}
""")

SERVICE: Final = Template("""\
---
# network-policy.yaml says who may connect.
apiVersion: v1
kind: Service
metadata:
  name: $name
  labels:
    app.kubernetes.io/name: client-manager
    app.kubernetes.io/component: $name
spec:
  selector:
    app.kubernetes.io/name: client-manager
    app.kubernetes.io/component: $name
  ports:
    - {name: $port_name, port: $port, targetPort: $port_name}
""")

DISRUPTION_BUDGET: Final = Template("""\
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: $name
  labels:
    app.kubernetes.io/name: client-manager
    app.kubernetes.io/component: $name
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      app.kubernetes.io/name: client-manager
      app.kubernetes.io/component: $name
""")

# What the dashboard alone needs: where the others' Services are, and who may sign in.
ENVIRONMENT: Final = {
    "dashboard": """\
          # It asks these services whether they answer. The config map says where they listen, each in its own pod; here
          # they are found by their Services' names.
          env:
            - {name: LIVE_WS_HOST, value: broadcast}
            - {name: DAGSTER_HOST, value: dagster}
"""
}
MOUNTS: Final = {
    "dashboard": """\
            - {name: users, mountPath: /etc/client-manager, readOnly: true}
""",
    "pubsub-gateway": """\
            - {name: identities, mountPath: /etc/client-manager, readOnly: true}
""",
}
VOLUMES: Final = {
    "dashboard": """\
        - name: users
          secret:
            secretName: client-manager-dashboard-users
            # For the pod's own group: a file that others may read is refused.
            defaultMode: 0440
            items:
              - {key: users, path: users}
""",
    "pubsub-gateway": """\
        - name: identities
          secret:
            secretName: client-manager-gateway
            defaultMode: 0400
""",
}


def manifests() -> dict[str, str]:
    """The manifest of each process that deploy/ can start, by the name of its file."""
    return {
        f"{process.name}.yaml": _manifest(entry, process)
        for entry in daemons.ALL
        if entry.starts != "by hand"
        for process in entry.processes
    }


def resources() -> list[str]:
    """What the kustomization applies, in order."""
    names = [*WRITTEN_BY_HAND, *(f"{process.name}.yaml" for process in daemons.started())]
    return [f"- {name}" for name in sorted(names)]


def _manifest(entry: DaemonEntry, process: Process) -> str:
    name, deployed, listens = process.name, entry.deployment, entry.listens
    note = deployed.note
    if entry.starts == "where needed":
        note += " To run it, add it to kustomization.yaml."
    is_spread = deployed.replicas > 1 if deployed.is_spread is None else deployed.is_spread
    parts = [
        "".join(f"# {line}\n" for line in textwrap.wrap(note, 118)),
        DEPLOYMENT.substitute(
            name=name,
            replicas=deployed.replicas,
            metrics_port=FIRST_PORT,
            spread=SPREAD.substitute(name=name) if is_spread else "",
            arguments=", ".join((*process.arguments, *process.spelled_out)),
            secrets="".join(f"            - {reference}\n" for reference in secret_references(entry)),
            environment=ENVIRONMENT.get(name, ""),
            own_port=_own_port(listens),
            readiness=_readiness(listens),
            cpu=deployed.cpu,
            memory=deployed.memory,
            memory_limit=deployed.memory_limit,
            mounts=MOUNTS.get(name, ""),
            volumes=VOLUMES.get(name, ""),
        ),
    ]
    if listens is not None:
        parts.append(SERVICE.substitute(name=name, port_name=listens.port_name, port=_port(listens)))
    if deployed.replicas > 1:
        parts.append(DISRUPTION_BUDGET.substitute(name=name))
    return "".join(parts)


def _own_port(listens: Listening | None) -> str:
    if listens is None:
        return ""
    return f"            - {{name: {listens.port_name}, containerPort: {_port(listens)}}}\n"


def _readiness(listens: Listening | None) -> str:
    if listens is None or not listens.health_path:
        return READY
    return READY_ON_ITS_OWN_PORT.substitute(path=listens.health_path, port=listens.port_name)


def _port(listens: Listening) -> int:
    """As config.yaml has it, which is the default."""
    port: int = Settings.model_fields[listens.port_setting.lower()].default
    return port
