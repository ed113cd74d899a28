"""How our errors reach Dagster: a step is tried again only where that can help."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from clientmgr.base.errors import is_permanent

RETRY_POLICY = dg.RetryPolicy(max_retries=3, delay=5, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.FULL)


@contextmanager
def permanent_errors_are_final() -> Iterator[None]:
    """What can never succeed fails the step at once, whatever its retry policy."""
    try:
        yield
    except Exception as error:
        if is_permanent(error):
            raise dg.Failure(str(error), allow_retries=False) from error
        raise
