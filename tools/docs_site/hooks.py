"""What mkdocs is told in Python: headings get the anchors that GitHub gives them."""

import runpy
from pathlib import Path
from typing import Any

# By its path: its package needs all of ours, and the site's virtualenv has none of it.
_MARKDOWN = runpy.run_path(str(Path(__file__).parent.parent / "docs" / "markdown.py"))


def on_config(config: Any) -> Any:
    config["mdx_configs"].setdefault("toc", {})["slugify"] = lambda heading, _separator: _MARKDOWN["anchor"](heading)
    return config
