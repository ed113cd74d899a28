"""`python -m bench.scaling [FILE …]`: the tables of docs/scaling.md, from what runs measured (files of `--json`).

Without files: from `measured.json` beside this one, which the published tables were made from. `--write` puts them into
docs/scaling.md, and figures of files into `measured.json`.
"""

from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from bench.scaling.measured import Measured, read_measured
from bench.scaling.tables import blocks
from tools.docs import DOCS, with_blocks

PUBLISHED: Final = Path(__file__).with_name("measured.json")
PAGE: Final = DOCS / "scaling.md"


def main(
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE]...")] = None,
    write: Annotated[bool, typer.Option("--write", help="Into docs/scaling.md, not to the console.")] = False,
) -> None:
    """Do the arithmetic."""
    measured = read_measured(*files) if files else published()
    if not write:
        for name, text in blocks(measured).items():
            typer.echo(f"\n## {name}\n\n{text}")
        return
    PUBLISHED.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")
    PAGE.write_text(page(), encoding="utf-8")


def published() -> Measured:
    return msgspec.json.decode(PUBLISHED.read_bytes(), type=Measured)


def page() -> str:
    """docs/scaling.md as it should be."""
    return with_blocks(PAGE, blocks(published()))


if __name__ == "__main__":
    typer.run(main)
