"""The real command, for tests that start it."""

import sys
from pathlib import Path

CLIENTMGR = Path(sys.executable).with_name("clientmgr")
