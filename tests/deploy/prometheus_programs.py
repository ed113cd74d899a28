"""Prometheus itself, where there is one: no package index has it, so it is Debian's or Prometheus's own binary."""

import os
import shutil
from typing import Final

HOW_TO_GET_IT: Final = (
    "no {0} here: install Debian's package `prometheus`, which has both programs, or say in {1} where one is"
)


def find(program: str) -> str | None:
    """What the variable PROMETHEUS or PROMTOOL says, or the one on PATH."""
    return os.environ.get(program.upper()) or shutil.which(program)


def missing(program: str) -> str:
    return HOW_TO_GET_IT.format(program, program.upper())
