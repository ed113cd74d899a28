"""Files of deploy/ made from the registry of daemons: units, environment files, manifests, what to scrape.

`python -m tools.deploy` writes them, a test compares. The others (alerts, Dagster's manifest, the config map …) are
written by hand and held against the registry by tests/deploy.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tools.deploy import kubernetes, prometheus, systemd

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DEPLOY: Final = ROOT / "deploy"


def generated() -> dict[Path, str]:
    """Every file that is made from the registry, in whole or in part, as it should be."""
    files = {DEPLOY / "systemd" / name: text for name, text in systemd.files().items()}
    files |= {DEPLOY / "kubernetes" / name: text for name, text in kubernetes.manifests().items()}
    for path, name, lines in (
        (DEPLOY / "kubernetes" / "kustomization.yaml", "resources", kubernetes.resources()),
        (DEPLOY / "prometheus" / "prometheus.yml", "targets", prometheus.targets()),
    ):
        files[path] = _with(path, name, lines)
    return files


def write(report: Callable[[str], object]) -> None:
    """Write what is not as it should be."""
    for path, text in generated().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            report(f"written: {path.relative_to(ROOT)}")


def _with(path: Path, name: str, lines: Sequence[str]) -> str:
    """The YAML file with its generated lines, which stand between `# generated: NAME` and `# end`, anew."""
    before, found, rest = path.read_text(encoding="utf-8").partition(f"# generated: {name}\n")
    _, closed, after = rest.partition("# end\n")
    if not found or not closed:
        raise ValueError(f"{path}: expected a part between `# generated: {name}` and `# end`")
    indent = before.rpartition("\n")[2]
    content = "".join(f"{indent}{line}\n" for line in lines)
    return f"{before}{found}{content}{indent}{closed}{after}"
