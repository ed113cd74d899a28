"""`python -m tools.docs_site FOLDER`, run by the virtualenv of tools/locks/docs.lock: Markdown in, a static site out.

The pages are taken as they lie here, so that links between them need no change. A link to anything else of the
repository becomes plain text; one that leads nowhere ends it. The site loads nothing from elsewhere.
"""

import json
import logging
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.commands.build import build  # type: ignore[import-not-found]
from mkdocs.config import load_config  # type: ignore[import-not-found]
from mkdocs.exceptions import Abort  # type: ignore[import-not-found]

from tools.docs_site import HOME, NAVIGATION

ROOT = Path(__file__).resolve().parent.parent.parent
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//([^/"'\s>]+)""")
SITE_URL = "https://docs.invalid/"
"""Nobody knows where it will be served; with none, the pages would not know their own folders."""


def main(target: Path) -> int:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        pages = [page for page in (ROOT / "docs").rglob("*") if page.is_file()]
        pages += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
        stage(pages, source)
        config = load_config(
            config_file=str(configuration(source)), docs_dir=str(source), site_dir=str(target.resolve()), strict=True
        )
        try:
            build(config)
        except Abort as error:
            sys.stderr.write(f"{error}\n")
            return 1
    found = {f"{page.relative_to(target)}: {host}" for page in target.rglob("*.html") for host in loaded_from(page)}
    sys.stdout.write("".join(f"loads from elsewhere: {one}\n" for one in sorted(found)))
    if not found:
        sys.stdout.write(f"to look at it and search: python3 -m http.server --directory {target}\n")
    return 1 if found else 0


def stage(pages: list[Path], source: Path) -> None:
    staged = {page.resolve() for page in pages}
    for page in pages:
        file = source / page.relative_to(ROOT)
        file.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            file.write_text(with_links_to(staged, page), encoding="utf-8")
        else:
            shutil.copy(page, file)
    (source / "README.md").rename(source / HOME)


def with_links_to(staged: set[Path], page: Path) -> str:
    def mend(found: re.Match[str]) -> str:
        text, target = found.groups()
        file = (page.parent / target.partition("#")[0]).resolve()
        if "://" in target or target.startswith("#") or file in staged:
            return found[0].replace("README.md", HOME) if file == ROOT / "README.md" else found[0]
        # Of no page; where it is not even there, the link stays, and mkdocs names it.
        return text if file.exists() else found[0]

    return _LINK.sub(mend, page.read_text(encoding="utf-8"))


def configuration(source: Path) -> Path:
    """As mkdocs wants it. JSON is YAML."""
    file = source.parent / f"{source.name}.yml"
    wanted: dict[str, Any] = {
        "site_name": "Client Manager",
        "site_url": SITE_URL,
        "use_directory_urls": False,
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.indexes", "navigation.top", "search.highlight", "content.code.copy"],
            "palette": [
                {"media": f"(prefers-color-scheme: {scheme})", "scheme": name, "primary": "teal"}
                for scheme, name in (("light", "default"), ("dark", "slate"))
            ],
        },
        "plugins": ["search"],
        "markdown_extensions": [
            "tables",
            "admonition",
            "pymdownx.superfences",
            "pymdownx.highlight",
            "mdx_truly_sane_lists",
            {"toc": {"permalink": True}},
        ],
        "hooks": [str(Path(__file__).with_name("hooks.py"))],
        "validation": {
            "nav": {"omitted_files": "warn", "not_found": "warn"},
            "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn", "unrecognized_links": "warn"},
        },
        "nav": [{title: list(placed(patterns, source))} for title, patterns in NAVIGATION.items()],
    }
    file.write_text(json.dumps(wanted), encoding="utf-8")
    return file


def placed(patterns: tuple[str, ...], source: Path) -> Iterator[str]:
    for pattern in patterns:
        found = sorted(source.glob(pattern))
        if not found:
            yield pattern  # mkdocs says that it is not there
        for page in found:
            if page.relative_to(source).as_posix() not in set(patterns) - {pattern}:
                yield page.relative_to(source).as_posix()


def loaded_from(page: Path) -> set[str]:
    """Hosts that a browser would ask to show the page."""
    html = re.sub(r'<link[^>]*rel="?canonical"?[^>]*>|<a\b[^>]*>', "", page.read_text(encoding="utf-8"))
    return set(_LOADED.findall(html))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
