"""Imported by the process that runs are forked from, and by no other: it ends with the code server, and runs with it.

Without this neither would: each run holds the pipe by whose end the process would know. SIGTERM lets a run say that it
failed; Dagster then starts it again.
"""

import ctypes
import gc
import os
import signal
import sys
from typing import Final

_FORKED_FROM: Final = os.getpid()
_PR_SET_PDEATHSIG: Final = 1


def _end_with_the_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end_with_what_it_was_forked_from() -> None:
    # What a run itself forks, Spark's workers for instance, is its own affair.
    if os.getppid() == _FORKED_FROM:
        _end_with_the_parent()


# Whoever started the code server may ignore it, and what is ignored is inherited.
signal.signal(signal.SIGTERM, signal.SIG_DFL)
_end_with_the_parent()
os.register_at_fork(after_in_child=_end_with_what_it_was_forked_from)
# All that is imported by now is shared with the runs, and stays so as long as nobody counts its references anew.
gc.freeze()
