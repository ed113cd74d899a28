"""Files and modules that documents, docstrings and comments name are there: files move, sentences stay behind."""

import importlib.util
import re
from pathlib import Path

import pytest

from tools.docs import DOCS, ROOT

PACKAGES = ("clientmgr", "clientmgr_dagster", "clientmgr_dashboard", "streaming")
FOLDERS = (*PACKAGES, "bench", "deploy", "docs", "sql", "tests", "tools")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
CODE = [
    file
    for folder in FOLDERS
    for pattern in ("*.py", "*.sql", "*.html", "*.yaml", "*.yml", "*.service")
    for file in sorted((ROOT / folder).rglob(pattern))
    # A migration that was applied keeps its text, whatever has moved since. And what a test adds to a copy is not here.
    if re.match(r"\d{4}_", file.name) is None and not file.name.startswith("test_add_a")
]
FILES = frozenset(f"/{file.relative_to(ROOT)}" for folder in FOLDERS for file in (ROOT / folder).rglob("*.*"))

_IN_BACKTICKS = re.compile(r"`([\w./-]+\.(?:py|sql|md|html))`")
_PATH = re.compile(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w\.(?:py|sql|md|html|yaml|yml))\b")
_MODULE = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.[a-z_]+){{2,}})(?:\.[A-Z]\w*|\.[a-z_]+\(\))?`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_files_that_there_are(page: Path) -> None:
    named = {name for name in _IN_BACKTICKS.findall(page.read_text()) if not name.startswith(".")}
    assert [name for name in sorted(named) if not _is_there(name)] == []


def test_code_names_files_and_modules_that_there_are() -> None:
    missing = []
    for file in CODE:
        text = file.read_text()
        missing += [f"{file.relative_to(ROOT)}: {name}" for name in _PATH.findall(text) if not _is_there(name)]
        missing += [f"{file.relative_to(ROOT)}: {name}" for name in _MODULE.findall(text) if not _is_importable(name)]
    assert missing == []


def _is_there(name: str) -> bool:
    """A page may leave the first folders out where the rest tells which file is meant."""
    if "/_config/" in name:  # a wheel's own folder
        name = name.rpartition("/")[2]
    return any(file.endswith(f"/{name.lstrip('/')}") for file in FILES) or (ROOT / name).is_file()


def _is_importable(name: str) -> bool:
    """A module, or something in one."""
    for candidate in (name, name.rpartition(".")[0]):
        try:
            if importlib.util.find_spec(candidate) is not None:
                return True
        except ModuleNotFoundError:
            continue
    return False
