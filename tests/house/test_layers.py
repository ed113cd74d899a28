"""The layers contract is about every room of the house: a package that it does not name could know anybody."""

import tomllib

from tools.docs import ROOT

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]


def test_every_package_has_a_layer() -> None:
    (layers,) = [contract["layers"] for contract in CONTRACTS["contracts"] if contract["type"] == "layers"]
    named = {package.strip() for layer in layers for package in layer.split("|")}
    rooms = {f"clientmgr.{init.parent.name}" for init in (ROOT / "clientmgr").glob("*/__init__.py")}
    others = {init.parent.name for init in ROOT.glob("*/__init__.py")} - {"clientmgr", "bench", "tests", "tools"}
    assert rooms | others | {"clientmgr.__main__"} == named


def test_nothing_is_excused_from_the_layers() -> None:
    assert CONTRACTS["exclude_type_checking_imports"] is False
    assert [contract for contract in CONTRACTS["contracts"] if contract.get("ignore_imports")] == []
