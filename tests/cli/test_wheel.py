"""The wheel carries what a checkout has beside the packages: SQL, Dagster's configuration, the licence."""

import json
import os
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from clientmgr.__main__ import EXTRA_OF, extra_of

REPOSITORY = Path(__file__).parent.parent.parent

# All that `pip install clientmgr` installs, on Linux: the log as a library, docs/library.md.
LIGHT = {
    "annotated-types",
    "msgspec",
    "prometheus-client",
    "psycopg",
    "psycopg-binary",
    "psycopg-pool",
    "pydantic",
    "pydantic-core",
    "pydantic-settings",
    "python-dotenv",
    "structlog",
    "typing-extensions",
    "typing-inspection",
}

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


def test_it_needs_only_what_the_log_needs(wheel: Path) -> None:
    told = _metadata(wheel)
    needed: set[str] = set()
    waiting = [(Requirement(text), "") for text in told.get_all("Requires-Dist") or ()]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        needed.add(name)
        for asked in ("", *requirement.extras):
            waiting += [(Requirement(text), asked) for text in metadata.requires(name) or ()]
    assert needed == LIGHT


def test_every_package_of_an_extra_is_known_by_its_module(wheel: Path) -> None:
    """So that whoever lacks one is told what to install."""
    extras: dict[str, set[str]] = {}
    for text in _metadata(wheel).get_all("Requires-Dist") or ():
        requirement = Requirement(text)
        found = re.search(r"extra == ['\"](\w+)", str(requirement.marker or ""))
        if found and found[1] not in {"all", "dev"}:
            extras.setdefault(found[1], set()).add(canonicalize_name(requirement.name))
    by_module = metadata.packages_distributions()
    known: dict[str, set[str]] = {}
    for module, extra in EXTRA_OF.items():
        if module not in {"google", "botocore"} and "." not in module:
            known.setdefault(extra, set()).update(map(canonicalize_name, by_module[module]))
    known["pubsub"].add("google-cloud-pubsub")
    known["dagster"] |= {"google-cloud-bigquery", "google-cloud-bigquery-storage"}
    assert known == extras


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("typer", "cli"),
        ("google.pubsub_v1", "pubsub"),
        ("google.cloud.bigquery.client", "dagster"),
        ("redis.asyncio", "live"),
        ("clientmgr.nothing", None),
    ],
)
def test_a_missing_module_tells_its_extra(module: str, extra: str | None) -> None:
    assert extra_of(module) == extra


def test_a_command_without_its_packages_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['typer'] = None; from clientmgr.__main__ import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "clientmgr: this needs typer: pip install 'clientmgr[cli]', or clientmgr[all]\n"


def _metadata(wheel: Path) -> Message:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    return message_from_bytes(archive.read(name))
