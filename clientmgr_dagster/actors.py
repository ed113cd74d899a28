"""Who is behind a run, for the audit log: what the webserver or a sensor of ours tagged it with, never its config."""

import getpass
import os
from collections.abc import Mapping

from clientmgr.contracts.run_tags import LAUNCHED_BY, REQUESTED_BY


def actor_behind(tags: Mapping[str, str]) -> str:
    """By a run's tags. A run without either was started in a shell, by somebody who can read our settings."""
    return tags.get(LAUNCHED_BY) or tags.get(REQUESTED_BY) or f"dagster-cli:{_system_user()}"


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return str(os.getuid())
