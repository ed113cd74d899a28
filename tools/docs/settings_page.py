"""docs/settings.md: every setting, by the sections of clientmgr/base/settings."""

from clientmgr.base.hiding import display_value
from clientmgr.base.settings import SECTIONS, Settings
from tools.docs.markdown import code, table

INTRODUCTION = """\
# Settings

<!-- Written by `python -m tools.docs` from clientmgr/base/settings/: change the text there. -->

Each setting is an environment variable; `.env` in the working directory is read too, and the environment wins over it.
A wrong value stops a program at its start, by name, with what was expected. `clientmgr config` shows the values in
effect, secrets hidden. A file of `NAME=value` lines serves systemd (`EnvironmentFile=`) and Kubernetes (a config map
and a secret) alike: see [operating.md](operating.md#configure).
"""


def render() -> str:
    parts = [INTRODUCTION]
    for title, names in sections().items():
        rows = [(code(name.upper()), default(name), Settings.model_fields[name].description or "") for name in names]
        parts.append(f"## {title}\n\n{table(('variable', 'default', 'meaning'), rows)}\n")
    return "\n".join(parts)


def sections() -> dict[str, list[str]]:
    """The settings' names by section, in the order they are declared."""
    return {section.__doc__ or "": list(section.__annotations__) for section in SECTIONS}


def default(name: str) -> str:
    """As the environment would hold it; nothing for what is empty by default."""
    shown = display_value(Settings.model_fields[name].default)
    return code(shown) if shown else ""
