"""What our code says without being run: which modules it reaches by its imports, and what they name."""

import ast
import functools
from collections.abc import Collection
from pathlib import Path
from typing import Final

from clientmgr.base.settings import Settings

ROOT: Final = Path(__file__).resolve().parent.parent.parent
COLLECTORS: Final = {"Counter", "Gauge", "Histogram"}


def reachable(modules: Collection[str], *, but_not: Collection[str] = ()) -> set[str]:
    """Our modules that these import, late imports included, and those that they import, and so on."""
    found: set[str] = set()
    to_see = list(modules)
    while to_see:
        module = to_see.pop()
        if module not in found and module not in but_not and _file_of(module) is not None:
            found.add(module)
            to_see += _imports(module)
    return found


@functools.cache
def settings_read(module: str) -> set[str]:
    """NAME for every `….settings.name` and `settings.name`. Of a property: what it is made from."""
    return {
        name.upper()
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Attribute) and _last_name(node.value).endswith("settings")
        for name in fields_behind(node.attr)
    }


@functools.cache
def fields_behind(name: str) -> frozenset[str]:
    """The field itself, or those that a property of Settings reads, however indirectly."""
    if name in Settings.model_fields:
        return frozenset({name})
    read = {
        node.attr
        for function in ast.walk(_tree(Settings.__module__))
        if isinstance(function, ast.FunctionDef)
        and function.name == name
        and isinstance(getattr(Settings, name, None), property)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and _last_name(node.value) == "self"
    }
    return frozenset().union(*map(fields_behind, read - {name}))


@functools.cache
def roles_taken(module: str) -> set[str]:
    """NAME for every `Role.NAME`."""
    return {
        node.attr
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Attribute) and _last_name(node.value) == "Role"
    }


@functools.cache
def has_metrics(module: str) -> bool:
    """Whether it makes a counter, gauge or histogram of its own."""
    return any(
        isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Call)
        and _last_name(node.value.func) in COLLECTORS
        for node in _tree(module).body
    )


@functools.cache
def _imports(module: str) -> list[str]:
    found: list[str] = []
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    for package in _looked_through(module, found):
        file = _file_of(package)
        assert file is not None, package
        found += [f"{package}.{one.stem}" for one in file.parent.glob("*.py") if one != file]
    return found


def _looked_through(module: str, imported: Collection[str]) -> list[str]:
    """The packages whose modules this one imports whatever they are: `pkgutil.iter_modules(package.__path__)`."""
    paths = [
        node.args[0]
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Call) and _last_name(node.func) == "iter_modules"
    ]
    names = {_last_name(path.value) for path in paths if isinstance(path, ast.Attribute)}
    return [
        *([module] if any(isinstance(path, ast.Name) for path in paths) else []),
        *(name for name in imported if name.rpartition(".")[2] in names and _file_of(name) is not None),
    ]


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


@functools.cache
def _file_of(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@functools.cache
def _tree(module: str) -> ast.Module:
    file = _file_of(module)
    assert file is not None, module
    return ast.parse(file.read_text(encoding="utf-8"))
