"""Code versions of assets: a digest of the code and the SQL that compute them. Nobody has to count one up.

What counts is the module where the asset is defined and all that it imports of ours, with the SQL files they name.
Left out is what only connects: settings, connections, the message transport, Spark's session, and Dagster's shell
around the work.
Otherwise every asset would look outdated after any change.
"""

import functools
import hashlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from clientmgr.base import sqlfiles

_ONLY_CONNECT: Final = (
    "clientmgr.base",
    "clientmgr.broker",
    "clientmgr.contracts",
    "clientmgr_dagster.spark.session",
    "streaming.runtime",
)
_SHELL: Final = re.compile(r"clientmgr_dagster\.\w+")
"""The modules beside `defs/` and `spark/`."""
_OURS: Final = ("clientmgr", "clientmgr_dagster", "streaming")

_IMPORT = re.compile(r"^\s*from ([\w.]+) import (\([^)]*\)|.+)$", re.MULTILINE)
_NAME = re.compile(r"\w+")
_QUERIES = re.compile(r'"(\w+/(?:queries|results)/\w+\.sql)"')
_DEVICE_QUERIES = re.compile(r'device_queries\("(\w+)"\)')
_MIGRATIONS = re.compile(r'sql_root\(\) / "(\w+)"')
_WORD = re.compile(r'"(\w+)"')


@functools.cache
def code_version(*modules: str) -> str:
    """Of what these modules compute."""
    # In the order of their contents: a wheel keeps its files elsewhere than a checkout.
    contents = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in _files(modules))
    return hashlib.sha256("".join(contents).encode()).hexdigest()[:12]


def _files(modules: Iterable[str]) -> set[Path]:
    found: dict[str, Path] = {}
    sql: set[Path] = set()
    waiting = list(modules)
    roots = {*_OURS, *(name.partition(".")[0] for name in waiting)}
    while waiting:
        name = waiting.pop()
        path = _path_of(name)
        if name in found or path is None:
            continue
        found[name] = path
        text = path.read_text(encoding="utf-8")
        sql.update(_sql_of(text))
        waiting.extend(one for one in _imports(text) if one.partition(".")[0] in roots and _computes(one))
    return {*found.values(), *sql}


def _imports(text: str) -> Iterator[str]:
    for package, names in _IMPORT.findall(text):
        yield package
        # A name may be a module itself.
        yield from (f"{package}.{name}" for name in _NAME.findall(names))


def _computes(name: str) -> bool:
    return not name.startswith(_ONLY_CONNECT) and _SHELL.fullmatch(name) is None


@functools.cache
def _path_of(name: str) -> Path | None:
    """The file of a module. None: it is a package, or no module at all."""
    root, _, rest = name.partition(".")
    spec = importlib.util.find_spec(root)
    folders = spec.submodule_search_locations if spec else None
    if not rest or not folders:
        return None
    path = Path(folders[0], *rest.split(".")).with_suffix(".py")
    return path if path.is_file() else None


def _sql_of(text: str) -> Iterator[Path]:
    results, root = sqlfiles.result_tables(), sqlfiles.sql_root()
    named = {*_QUERIES.findall(text), *(results[word] for word in _WORD.findall(text) if word in results)}
    named |= {f"tenant/queries/{file}.sql" for file in _DEVICE_QUERIES.findall(text)}
    yield from (root / one for one in named)
    for folder in _MIGRATIONS.findall(text):
        yield from (root / folder).glob("*.sql")
