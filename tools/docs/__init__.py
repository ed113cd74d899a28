"""Documentation made from the code: settings, daemons, messages. `python -m tools.docs` writes it, a test compares."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry
from tools.docs import access_matrix, daemon_pages, filter_fields, message_catalogue, settings_page

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DOCS: Final = ROOT / "docs"


def generated() -> dict[Path, str]:
    """Every file that is made from the code, in whole or in part, as it should be."""
    files = {
        DOCS / "settings.md": settings_page.render(),
        DOCS / "message_catalogue.md": message_catalogue.render(),
        DOCS / "message_schemas.json": message_catalogue.render_schemas(),
        DOCS / "device_mapper.md": with_blocks(DOCS / "device_mapper.md", filter_fields.blocks()),
        DOCS / "daemons.md": with_blocks(DOCS / "daemons.md", daemon_pages.index_blocks()),
        DOCS / "security.md": with_blocks(DOCS / "security.md", access_matrix.blocks()),
        DOCS / "operating.md": with_blocks(DOCS / "operating.md", daemon_pages.enable_block()),
    }
    return files | {page_of(entry): render_page(entry) for entry in daemons.ALL}


def page_of(entry: DaemonEntry) -> Path:
    return DOCS / "daemons" / f"{entry.name}.md"


def render_page(entry: DaemonEntry) -> str:
    """A daemon's page. A daemon without one gets a page to begin with."""
    if_new = daemon_pages.NEW_PAGE.format(name=entry.name, help=entry.help)
    return with_blocks(page_of(entry), daemon_pages.page_blocks(entry), if_new=if_new)


def write(tell: Callable[[str], object]) -> None:
    """Write what is not as it should be."""
    for path, text in generated().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            tell(f"written: {path.relative_to(ROOT)}")


def with_blocks(path: Path, blocks: dict[str, str], *, if_new: str = "") -> str:
    """The file with its generated parts, which stand between `<!-- generated: NAME -->` and `<!-- end -->`, anew."""
    text = if_new if if_new and not path.exists() else path.read_text(encoding="utf-8")
    for name, content in blocks.items():
        begin, end = f"<!-- generated: {name} -->\n", "<!-- end -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{path}: expected a part between {begin.strip()} and {end}")
        text = f"{before}{begin}\n{content.strip()}\n\n{end}{after}"
    return text
