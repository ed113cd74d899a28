"""Markdown, as little as the generated pages need."""

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown, and what would end a cell is escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def code(*names: str) -> str:
    """Names as code, with commas between."""
    return ", ".join(f"`{name}`" for name in names)


def fenced(text: str, language: str) -> str:
    return f"```{language}\n{text.strip()}\n```"


def anchor(heading: str) -> str:
    """What a link to a heading ends with, as GitHub makes it: small letters, no punctuation but `-` and `_`."""
    kept = [character for character in heading.lower() if character.isalnum() or character in " -_"]
    return "".join(kept).strip().replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
