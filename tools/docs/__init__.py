"""Documentation made from the code: settings, daemons, messages. `python -m tools.docs` writes it, a test compares."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.docs import daemon_pages, filter_fields, message_catalogue, settings_page

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DOCS: Final = ROOT / "docs"


def generated() -> dict[Path, str]:
    """Every file that is made from the code, in whole or in part, as it should be."""
    files = {
        DOCS / "settings.md": settings_page.render(),
        DOCS / "message_catalogue.md": message_catalogue.render(),
        DOCS / "message_schemas.json": message_catalogue.render_schemas(),
        DOCS / "device_mapper.md": _with(DOCS / "device_mapper.md", filter_fields.blocks()),
        DOCS / "daemons.md": _with(DOCS / "daemons.md", daemon_pages.index_blocks()),
    }
    for daemon in daemon_pages.pages():
        path = DOCS / "daemons" / f"{daemon.name}.md"
        files[path] = _with(path, daemon_pages.page_blocks(daemon))
    return files


def write(tell: Callable[[str], object]) -> None:
    """Write what is not as it should be."""
    for path, text in generated().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            tell(f"written: {path.relative_to(ROOT)}")


def _with(path: Path, blocks: dict[str, str]) -> str:
    """The file with its generated parts, which stand between `<!-- generated: NAME -->` and `<!-- end -->`, anew."""
    text = path.read_text(encoding="utf-8")
    for name, content in blocks.items():
        begin, end = f"<!-- generated: {name} -->\n", "<!-- end -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{path}: expected a part between {begin.strip()} and {end}")
        text = f"{before}{begin}\n{content.strip()}\n\n{end}{after}"
    return text
