"""Stopping a run stops its Spark jobs: whatever its session still has under way is cancelled when the run ends.

In a JVM of our own they would end with it. On a Spark Connect server or a cluster they would go on, and write.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

ANSWER_WITHIN_S = 10.0


def cancel_jobs(session: SparkSession) -> None:
    """Cancel what the session still has under way, by whichever thread. Nothing under way: nothing happens.

    In a thread of its own: an interrupt may have left this thread's connection to the JVM in the middle of an answer,
    and the answer to this call would come after it. A Spark that does not answer is not waited for. All of the session,
    and not by a tag: to Spark a tag is the thread's that set it, and another thread cancels nothing by it.
    """
    cancelling = threading.Thread(target=session.interruptAll, daemon=True)
    cancelling.start()
    cancelling.join(ANSWER_WITHIN_S)


@contextmanager
def interrupts_stay_as_they_are() -> Iterator[None]:
    """For the start of a session: Spark would take SIGINT over, and wait in its handler for the job that runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
