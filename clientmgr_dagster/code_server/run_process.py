"""Imported by the process that runs are forked from, and by no other: what each run does before anything else.

A run ends with that process, which ends with the code server. SIGTERM lets it say that it failed: Dagster then starts
it again.
"""

import ctypes
import gc
import os
import signal
import sys
from typing import Final

_PARENT: Final = os.getpid()
_PR_SET_PDEATHSIG: Final = 1


def _end_with_the_parent() -> None:
    # What a run itself forks, Spark's workers for instance, is its own affair.
    if os.getppid() == _PARENT and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


os.register_at_fork(after_in_child=_end_with_the_parent)
# All that is imported by now is shared with the runs, and stays so as long as nobody counts its references anew.
gc.freeze()
