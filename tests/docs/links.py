"""Headings and links of Markdown files, as GitHub sees them."""

import re
from pathlib import Path

from tools.docs.markdown import anchor

_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors_of(path: Path) -> set[str]:
    """What `#…` may follow the file's name."""
    return {anchor(heading) for heading in _HEADING.findall(_prose(path))}


def broken_links(path: Path) -> list[str]:
    """Links to files that are not there, and to headings that they do not have."""
    broken = []
    for target in _LINK.findall(_prose(path)):
        if "://" in target:
            continue
        name, _, fragment = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (fragment and fragment not in anchors_of(file)):
            broken.append(target)
    return broken


def _prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text(encoding="utf-8"))
