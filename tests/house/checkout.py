"""A copy of the code in which a test makes the change that a guide describes, and runs what came of it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
COPIED: Final = ("clientmgr", "clientmgr_dagster", "sql")


class Checkout:
    """The packages, copied. Whatever is changed here, the code that the other tests see stays as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changed: set[str] = set()
        """The files that were edited or added: what the change costs."""
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name)

    def add_line(self, file: str, line: str, *, after: str) -> None:
        """Puts a line after the one that begins with `after`, at its indentation."""
        lines = (self.folder / file).read_text(encoding="utf-8").splitlines(keepends=True)
        (place,) = [number for number, text in enumerate(lines) if text.strip().startswith(after)]
        indentation = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
        lines.insert(place + 1, f"{indentation}{line}\n")
        (self.folder / file).write_text("".join(lines), encoding="utf-8")
        self.changed.add(file)

    def add_file(self, file: str, text: str) -> None:
        assert not (self.folder / file).exists()
        (self.folder / file).write_text(text, encoding="utf-8")
        self.changed.add(file)

    def add_tenant_migration(self, name: str, text: str) -> None:
        """As the newest of those that there are."""
        number = len(list((self.folder / "sql" / "tenant").glob("*.sql"))) + 1
        self.add_file(f"sql/tenant/{number:04d}_{name}.sql", text)

    def run(self, module: str, database_url: str) -> dict[str, Any]:
        """What a module of the tests prints as JSON, run with the copied code."""
        ended = subprocess.run(
            [sys.executable, "-m", module, database_url, str(self.folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)])},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert ended.returncode == 0, ended.stderr
        seen: dict[str, Any] = json.loads(ended.stdout)
        assert Path(seen.pop("code")).is_relative_to(self.folder)
        return seen
