"""What is logged, as a machine reads it."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clientmgr.base.logs import configure_logging
from clientmgr.base.settings import load_settings

Records = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Leaves the root logger as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def logged(restored_logging: None) -> Records:
    """The records logged since the test began."""
    stream = io.StringIO()
    configure_logging(load_settings(log_format="json"), stream=stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
