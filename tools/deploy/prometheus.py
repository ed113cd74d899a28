"""What Prometheus scrapes on a machine with systemd."""

from clientmgr.contracts import daemons
from tools.deploy.ports import metrics_ports


def targets() -> list[str]:
    """One for each process that always runs."""
    always = {process.name for process in daemons.started()}
    return [
        f'- {{targets: ["127.0.0.1:{port}"], labels: {{daemon: {name}}}}}'
        for name, port in metrics_ports()
        if name in always
    ]
