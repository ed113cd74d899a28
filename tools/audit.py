"""`python -m tools.audit VENV`: known vulnerabilities in every locked package, by pip-audit in a virtualenv of its own.

Exit codes: 0 all were looked up and none has any, 1 some have, 3 some could not be looked up. That nobody looked must
not pass for good news: of a package that its service does not know, pip-audit itself says "no known vulnerabilities".
"""

import filecmp
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
TOOL: Final = "tools/locks/audit.lock"
LOCKS: Final = (
    "requirements.lock",
    "standins/requirements.txt",
    "bench/requirements.txt",
    "tools/locks/build.lock",
    "tools/locks/docs.lock",
)
FOUND, NOT_CHECKED = 1, 3
MOST_NAMED: Final = 10

Report = Mapping[str, Any]
"""What pip-audit says of one lock, or `{"error": …}` where it says nothing."""


def judge(reports: Mapping[str, Report]) -> tuple[int, list[str]]:
    """The exit code, and what to tell. `reports`: by the lock's name."""
    found: list[str] = []
    unknown: list[str] = []
    for lock, report in reports.items():
        if error := report.get("error"):
            unknown.append(f"{lock}: {error}")
        for package in report.get("dependencies", ()):
            if reason := package.get("skip_reason"):
                unknown.append(f"{lock}: {reason}")
            found += _vulnerabilities(lock, package)
        if not error and not report.get("dependencies"):
            unknown.append(f"{lock}: no package of it was looked up")
    lines = [*found]
    if unknown:
        lines += [f"NOT CHECKED: {one}" for one in unknown[:MOST_NAMED]]
        if len(unknown) > MOST_NAMED:
            lines.append(f"NOT CHECKED: and {len(unknown) - MOST_NAMED} more")
        lines.append("Nothing is known about those. Run `make audit` where PyPI's vulnerability data can be reached.")
    if not lines:
        lines.append("no known vulnerability")
    return (FOUND if found else NOT_CHECKED if unknown else 0), lines


def _vulnerabilities(lock: str, package: Mapping[str, Any]) -> Iterable[str]:
    for one in package.get("vulns", ()):
        mended = ", ".join(one["fix_versions"]) or "no version yet"
        yield f"{lock}: {package['name']} {package['version']}: {one['id']}, mended in {mended}"


def scan(lock: str, audit_venv: Path) -> Report:
    """The locks are complete, with hashes: nothing is resolved or installed."""
    options = ["--progress-spinner", "off", "--timeout", "20", "--disable-pip", "--require-hashes", "--format", "json"]
    command: list[str | Path] = [audit_venv / "bin" / "pip-audit", *options, "-r", ROOT / lock]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report: Report = json.loads(done.stdout)
    except ValueError:
        told = done.stderr.strip().splitlines()
        return {"error": told[-1] if told else f"pip-audit ended with {done.returncode} and said nothing"}
    return report


def install(venv: Path, audit_venv: Path) -> str:
    """Why pip-audit could not be installed; empty: it is there."""
    wanted, installed = ROOT / TOOL, audit_venv / ".installed"
    if installed.exists() and filecmp.cmp(wanted, installed, shallow=False):
        return ""
    uv, python = venv / "bin" / "uv", audit_venv / "bin" / "python"
    locked = ["--require-hashes", "--only-binary", ":all:", "-r", str(wanted)]
    base: str = getattr(sys, "_base_executable", sys.executable)  # not the virtualenv's
    commands: tuple[list[str | Path], ...] = (
        [uv, "venv", "--quiet", "--clear", "--python", base, audit_venv],
        [uv, "pip", "install", "--quiet", "--python", python, *locked],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"pip-audit could not be installed: {' '.join(done.stderr.split())[-300:]}"
    shutil.copy(wanted, installed)
    return ""


def main() -> int:
    venv = Path(sys.argv[1])
    audit_venv = venv.with_name(".venv-audit")
    if problem := install(venv, audit_venv):
        exit_code, lines = judge({TOOL: {"error": problem}})
    else:
        exit_code, lines = judge({lock: scan(lock, audit_venv) for lock in LOCKS})
    sys.stdout.writelines(f"audit: {line}\n" for line in lines)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
