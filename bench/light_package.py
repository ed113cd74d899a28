"""The log as a library: what `pip install clientmgr` puts on a disk, how long that takes, and how long an import takes.

The wheel is built from this checkout and installed into empty virtualenvs at the locked versions, by uv, whose cache
has all packages after the first time: what is measured is the installation, not the network.

| variant | what it is |
|---|---|
| clientmgr | the log alone (docs/library.md) |
| with commands | `clientmgr[cli]`: the log and its commands |
| psycopg | the driver alone, which no library for PostgreSQL can do without |
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.harness.measure import measure, take_turns
from bench.harness.options import Options
from bench.harness.report import Comparison, Line

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements-runtime.lock"
IMPORTED = {"clientmgr": "clientmgr.broker", "with commands": "clientmgr.cli", "psycopg": "psycopg"}
MB = 1_000_000


def run(options: Options) -> Iterator[Comparison]:
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        places = Path(folder)
        _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
        (wheel,) = places.glob("*.whl")
        wanted = {name: _requirement(name, wheel) for name in IMPORTED}
        for name, requirement in wanted.items():  # once before, for uv's cache
            _install(_virtualenv(places / f"first-{name}"), requirement)
        installs = {name: Line(name, ()) for name in wanted}
        imports = {name: Line(name, ()) for name in wanted}
        for number, name in enumerate(take_turns(list(wanted), options.rounds)):
            python = _virtualenv(places / f"{number}-{name}")
            took = measure(lambda python=python, name=name: _install(python, wanted[name]))  # type: ignore[misc]
            installs[name] = Line(name, (*installs[name].samples, took))
            started = measure(lambda python=python, name=name: _run(python, "-c", f"import {IMPORTED[name]}"))  # type: ignore[misc]
            imports[name] = Line(name, (*imports[name].samples, started))
        sizes = tuple(f"{name}: {_megabytes(places / f'first-{name}'):.0f} MB, bytecode included" for name in wanted)
        yield Comparison("Install into an empty virtualenv", tuple(installs.values()), notes=sizes)
        yield Comparison("Start Python and import", tuple(imports.values()), notes=tuple(IMPORTED.values()))


def _requirement(name: str, wheel: Path) -> str:
    if name == "psycopg":
        return "psycopg[binary]"
    package = "clientmgr[cli]" if name == "with commands" else name
    return f"{package} @ {wheel.as_uri()}"


def _virtualenv(folder: Path) -> Path:
    _run(_uv(), "venv", "--quiet", "--python", sys.executable, folder)
    return folder / "bin" / "python"


def _install(python: Path, requirement: str) -> None:
    _run(_uv(), "pip", "install", "--quiet", "--compile-bytecode", "--python", python, "-c", LOCK, requirement)


def _megabytes(virtualenv: Path) -> float:
    return sum(file.stat().st_size for file in (virtualenv / "lib").rglob("*") if file.is_file()) / MB


def _uv() -> Path:
    return Path(sys.executable).with_name("uv")


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, cwd=ROOT)
