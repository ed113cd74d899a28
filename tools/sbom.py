"""`python -m tools.sbom FILE`: the bill of materials of what the image holds, as CycloneDX 1.6 in JSON.

Versions and hashes are the lock's, licences and dependencies those that the installed packages state. The same lock
gives the same document: it carries no time, and its serial number is made from its contents.
"""

import json
import re
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parent.parent
LOCK: Final = ROOT / "requirements-runtime.lock"
PROJECT: Final = "clientmgr"
EXTRAS: Final = frozenset({"all"})
NAMESPACE: Final = uuid.UUID("8c0f1c2e-54a5-4d0e-9b7e-3f5d1a4c6b27")
_PIN: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?: ; (?P<marker>[^\\]+?))? \\$")
_HASH: Final = re.compile(r"^    --hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Pinned:
    """A package of a lock."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"

    @property
    def is_for_this_system(self) -> bool:
        return not self.marker or Marker(self.marker).evaluate()


def pinned(lock: Path) -> list[Pinned]:
    """Every package of a lock that `uv pip compile --generate-hashes` made, with the hashes of its files."""
    packages: list[Pinned] = []
    for line in lock.read_text().splitlines():
        if pin := _PIN.match(line):
            packages.append(Pinned(canonicalize_name(pin["name"]), pin["version"], pin["marker"] or "", ()))
        elif found := _HASH.match(line):
            last = packages.pop()
            packages.append(Pinned(last.name, last.version, last.marker, (*last.hashes, found[1])))
    return packages


def needs(name: str, extras: frozenset[str] = frozenset()) -> Iterator[tuple[str, frozenset[str]]]:
    """What the installed package says that it needs on this system, with the extras that it asks for."""
    for text in metadata.requires(name) or ():
        required = Requirement(text)
        environments = [{**default_environment(), "extra": extra} for extra in ("", *extras)]
        if required.marker is None or any(required.marker.evaluate(one) for one in environments):  # type: ignore[arg-type]
            yield canonicalize_name(required.name), frozenset(required.extras)


def bill_of_materials(lock: Path = LOCK) -> dict[str, Any]:
    packages = [one for one in pinned(lock) if one.is_for_this_system]
    purls = {one.name: one.purl for one in packages}
    version = metadata.version(PROJECT)
    ours = {
        "type": "application",
        "bom-ref": PROJECT,
        "name": PROJECT,
        "version": version,
        "licenses": [{"expression": "Apache-2.0"}],
    }
    dependencies = [{"ref": PROJECT, "dependsOn": _known(PROJECT, EXTRAS, purls)}]
    dependencies += [{"ref": one.purl, "dependsOn": _known(one.name, frozenset(), purls)} for one in packages]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": ours},
        "components": [_component(one) for one in packages],
        "dependencies": dependencies,
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(document, sort_keys=True))
    return {**document, "serialNumber": f"urn:uuid:{serial}"}


def _component(package: Pinned) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        # Of each file that an index offers for this version: the one that was installed is among them.
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.hashes],
        **_licences(package.name),
    }


def _licences(name: str) -> dict[str, Any]:
    told = metadata.metadata(name)
    if expression := told.get_all("License-Expression"):
        return {"licenses": [{"expression": expression[0]}]}
    prefix = "License :: "
    classified = [one.split(" :: ")[-1] for one in told.get_all("Classifier") or () if one.startswith(prefix)]
    free_text = "".join(told.get_all("License") or ()).strip().splitlines()
    names = classified or [line[:100] for line in free_text[:1]]
    return {"licenses": [{"license": {"name": one}} for one in names]} if names else {}


def _known(name: str, extras: frozenset[str], purls: dict[str, str]) -> list[str]:
    return sorted({purls[other] for other, _ in needs(name, extras) if other in purls})


def main() -> None:
    file = Path(sys.argv[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    document = bill_of_materials()
    file.write_text(json.dumps(document, indent=2) + "\n")
    sys.stdout.write(f"written: {file}: {len(document['components'])} packages\n")


if __name__ == "__main__":
    main()
