"""An owner of an embedded stack, for tests that kill it: prints where the servers are, and runs until it is ended."""

import json
import signal

from clientmgr.embedded.postgres import PostgresTuning
from clientmgr.embedded.stack import EmbeddedStack
from clientmgr.logs import configure_logging
from clientmgr.settings import load_settings

if __name__ == "__main__":
    settings = load_settings()
    configure_logging(settings)
    with EmbeddedStack(settings, tuning=PostgresTuning(shared_buffers="16MB", fsync=False)) as stack:
        urls = {"database_url": stack.settings.database_url, "redis_url": stack.settings.redis_url}
        print(json.dumps(urls), flush=True)
        signal.pause()
