"""What is installed is what the locks name, by hash: in the image, in the virtualenvs, and in the bill of materials."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.deploy.files import DEPLOY, ROOT
from tools.audit import LOCKS, NOT_CHECKED, TOOL, judge
from tools.sbom import EXTRAS, LOCK, PROJECT, bill_of_materials, needs, pinned

CONTAINERFILE = DEPLOY / "container" / "Containerfile"
SETUPS = [ROOT / "tools" / name for name in ("setup", "setup-apart")]
ALL_LOCKS = (*LOCKS, TOOL, LOCK.name)
FETCHES = re.compile(r"\bpip (?:install|wheel)\b")
HASHED_OR_OURS = re.compile(r"--require-hashes|--no-index|--no-deps --no-build-isolation -e \.")
LOCKED_BY_A_VARIABLE = re.compile(r"\$build_tools|\$locked")


def commands_of(file: Path) -> list[str]:
    """Its commands, with continued lines joined and comments left out."""
    text = re.sub(r"^\s*#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [command for line in text.splitlines() for command in re.split(r"&&|\|\||;", line)]


@pytest.mark.parametrize("file", [CONTAINERFILE, *SETUPS], ids=lambda file: file.name)
def test_whatever_fetches_a_package_checks_its_hash(file: Path) -> None:
    fetching = [command for command in commands_of(file) if FETCHES.search(command)]
    assert fetching
    for command in fetching:
        assert HASHED_OR_OURS.search(command) or LOCKED_BY_A_VARIABLE.search(command), command
    for assigned in re.findall(r'^(?:build_tools|locked)="([^"]*)"', file.read_text(), re.MULTILINE):
        assert "--require-hashes" in assigned


def test_nothing_that_comes_as_source_is_built_by_tools_that_no_lock_names() -> None:
    for file in (CONTAINERFILE, *SETUPS):
        for command in commands_of(file):
            if FETCHES.search(command) and "--no-index --no-deps /tmp/wheels" not in command:
                isolated = "--no-build-isolation" in command or "--only-binary" in command
                assert isolated or LOCKED_BY_A_VARIABLE.search(command), command


@pytest.mark.parametrize(
    ("base", "is_taken"),
    [
        (f"docker.io/library/python@sha256:{'0a' * 32}", True),
        (f"python:3.12-slim@sha256:{'0a' * 32}", True),
        ("python:3.12-slim", False),
        ("python", False),
        ("", False),
        ("python@sha256:0a0a", False),
        (f"python@sha256:{'0a' * 32}-slim", False),
    ],
)
def test_the_image_is_built_on_a_base_by_its_digest_alone(base: str, is_taken: bool) -> None:
    text = CONTAINERFILE.read_text()
    assert re.findall(r"^ARG (.*)$", text, re.MULTILINE) == ["BASE", "BASE"], "without a default"
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}"}
    (check,) = [step for step in re.findall(r"^RUN ((?:.*\\\n)*.*)$", text, re.MULTILINE) if "sha256" in step]
    ran = subprocess.run(
        ["sh", "-c", check], env={"BASE": base, "PATH": "/usr/bin:/bin"}, capture_output=True, check=False
    )
    assert (ran.returncode == 0) == is_taken, ran.stderr


@pytest.mark.parametrize("lock", ALL_LOCKS)
def test_every_package_of_a_lock_has_hashes_and_no_lock_names_a_host(lock: str) -> None:
    packages = pinned(ROOT / lock)
    lines = (ROOT / lock).read_text().splitlines()
    assert len(packages) == sum(not line.startswith((" ", "#")) and bool(line.strip()) for line in lines) > 0
    assert [one.name for one in packages if not one.hashes] == []
    assert not [line for line in lines if "://" in line and not line.lstrip().startswith("#")]


def test_the_image_holds_the_packages_that_were_tested_and_all_that_it_needs() -> None:
    tested = {(one.name, one.version): set(one.hashes) for one in pinned(ROOT / "requirements.lock")}
    for one in pinned(LOCK):
        assert set(one.hashes) == tested[one.name, one.version], one.name
    locked = {one.name for one in pinned(LOCK) if one.is_for_this_system}
    needed: set[tuple[str, frozenset[str]]] = set()
    to_look_at = {(PROJECT, EXTRAS)}
    while to_look_at:
        needed |= to_look_at
        to_look_at = {other for name, extras in to_look_at for other in needs(name, extras)} - needed
    assert {canonicalize_name(name) for name, _ in needed} - {PROJECT} == locked


def test_the_bill_of_materials_names_every_package_with_hashes_and_what_it_depends_on() -> None:
    document = bill_of_materials()
    assert document == bill_of_materials(), "the same lock gives the same document"
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", document["serialNumber"])
    components = {one["bom-ref"]: one for one in document["components"]}
    assert {one["name"] for one in components.values()} == {p.name for p in pinned(LOCK) if p.is_for_this_system}
    for purl, component in components.items():
        assert purl == component["purl"] == f"pkg:pypi/{component['name']}@{component['version']}"
        assert all(re.fullmatch("[0-9a-f]{64}", one["content"]) for one in component["hashes"])
    references = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    assert references.keys() == {PROJECT, *components}
    assert {other for found in references.values() for other in found} <= components.keys()
    licensed = [one for one in components.values() if one.get("licenses")]
    assert len(licensed) > 0.9 * len(components)
    json.dumps(document)


def test_a_scan_that_looked_at_nothing_is_no_good_news() -> None:
    clean = {"dependencies": [{"name": "a", "version": "1", "vulns": []}]}
    skipped = {"dependencies": [*clean["dependencies"], {"name": "b", "skip_reason": "b was not found"}]}
    vulnerable = {"dependencies": [{"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}]}
    assert judge({"a": clean}) == (0, ["no known vulnerability"])
    unknowns: list[dict[str, object]] = [{"error": "no network"}, {**skipped}, {"dependencies": []}, {}]
    for unknown in unknowns:
        exit_code, lines = judge({"a": clean, "b": unknown})
        assert exit_code == NOT_CHECKED
        assert lines[0].startswith("NOT CHECKED: b")
    exit_code, lines = judge({"a": vulnerable, "b": skipped})
    assert exit_code == 1
    assert lines[0] == "a: c 2: PYSEC-1, mended in 3"
    assert any(line.startswith("NOT CHECKED") for line in lines)
