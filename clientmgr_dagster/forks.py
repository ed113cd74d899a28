"""What a process must be told before it imports libraries, if others are to be forked from it."""

from typing import Final

ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""NumPy and Arrow start threads when they are imported. A fork of a process with several threads could copy a lock that
nobody will ever release."""
