"""The wheel carries what a checkout has beside the packages: SQL, Dagster's configuration, the licence."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent

WHERE = """
import json
from clientmgr.local.processes.programs import config_file
from clientmgr.base.sqlfiles import named_queries, read_migrations, sql_root

print(json.dumps({
    "sql": str(sql_root()),
    "base": [migration.name for migration in read_migrations(sql_root() / "base")],
    "tenant": [migration.name for migration in read_migrations(sql_root() / "tenant")],
    "queries": sorted(named_queries("tenants/queries/tenants.sql")),
    "dagster.yaml": str(config_file("dagster.yaml")),
    "workspace.yaml": str(config_file("workspace.yaml")),
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    built = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (file,) = folder.glob("clientmgr-*.whl")
    return file


def ask(where_to_import_from: Path, cwd: Path) -> dict[str, object]:
    # -S: not the checkout that is installed for development; the packages it needs come by PYTHONPATH too.
    packages = os.pathsep.join([str(where_to_import_from), *(path for path in sys.path if "site-packages" in path)])
    result = subprocess.run(
        [sys.executable, "-S", "-c", WHERE],
        cwd=cwd,
        env={"PYTHONPATH": packages},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    told: dict[str, object] = json.loads(result.stdout)
    return told


def test_it_carries_sql_and_configuration(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    in_checkout = {
        f"clientmgr/_sql/{file.relative_to(REPOSITORY / 'sql')}" for file in (REPOSITORY / "sql").rglob("*.sql")
    }
    assert any(name.startswith("clientmgr/_sql/base/0001_") for name in in_checkout)
    assert in_checkout <= set(names)
    assert {"clientmgr/_config/dagster.yaml", "clientmgr/_config/workspace.yaml"} <= set(names)
    assert len(names) == len(set(names))


def test_it_carries_the_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "clientmgr",
        "clientmgr_dagster",
        "clientmgr_dashboard",
        "streaming",
    }
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_an_installed_one_finds_its_own_files_from_anywhere(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    told = ask(installed, cwd=tmp_path)
    assert told["sql"] == str(installed / "clientmgr" / "_sql")
    assert told["dagster.yaml"] == str(installed / "clientmgr" / "_config" / "dagster.yaml")
    assert told["workspace.yaml"] == str(installed / "clientmgr" / "_config" / "workspace.yaml")
    from_checkout = ask(REPOSITORY, cwd=tmp_path)
    assert from_checkout["sql"] == str(REPOSITORY / "sql")
    assert from_checkout["dagster.yaml"] == str(REPOSITORY / "dagster.yaml")
    for same in ("base", "tenant", "queries"):
        assert told[same] == from_checkout[same]
        assert told[same]
